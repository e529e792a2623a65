"""Continual learning on digits beside its theory: forgetting and transfer against pixel mixing, and replay protocols."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, MARKERS, mean_and_error
from solvable.study import Study, provenance

from ..continual_learning.model import ContinualLearning
from ..continual_protocols.model import ContinualProtocols
from .learning import HEADS
from .model import ContinualDigits
from .paired import continual_digits

ARMS: dict[str, dict[str, Any]] = {
    name: dict(ContinualDigits.arms_declared[name]) for name in ("specialised", "shared", "head copied")
}
STAGE = 100.0
"""Duration of both stages: in steps per pixel for digits, in steps per dimension for the theory."""

MIXED = (0.2, 0.4, 0.6)
HORIZONS = (4.0, 10.0)
INTERVALS = 20


def digits(quick: bool) -> dict[str, Any]:
    import xarray as xr

    seeds, mixing, arms = (24, 6, dict(list(ARMS.items())[:2])) if quick else (96, 11, ARMS)
    stage = 0.4 * STAGE if quick else STAGE
    stages: dict[str, Any] = {"first_stage": stage, "second_stage": stage}
    found = [continual_digits(np.linspace(0, 1, mixing), seeds=seeds, **(stages | arm)) for arm in arms.values()]
    whole: Any = xr.concat(found, xr.Variable("arm", list(arms)), combine_attrs="drop_conflicts", data_vars="all")
    forgetting = whole.squeeze("protocol").sel(stage=[0.0, 1.0, 2.0])
    grid = np.linspace(0, 1, 11 if quick else 41)
    # The first head is an input, so that both starts share one compiled program.
    same = {
        name: {k: v for k, v in arm.items() if k != "start"} | {"first_head": HEADS[arm["start"]]}
        for name, arm in arms.items()
    }
    theory = Study(ContinualLearning(**stages, points=1), {"similarity": grid}, arms=same).run()
    return {
        "forgetting": _with_provenance(forgetting),
        "theory": theory,
        "protocols": _with_provenance(protocols(quick, forgetting)),
    }


def protocols(quick: bool, measured: Any) -> Any:
    """Focus on task 2 followed by even replay, and the theory's optimal protocol at the similarity measured here.

    The optimal protocol is found for teachers of this overlap at the same horizon and used unchanged.
    """
    import xarray as xr

    seeds, shares = (24, 6) if quick else (96, 11)
    number = np.arange(INTERVALS)
    focus = {
        f"{share:.2f}": np.where(number < round(share * INTERVALS), 1.0, 0.5) for share in np.linspace(0, 1, shares)
    }
    alike = measured.linear_similarity.mean("seed").isel(arm=0).interp(mixing=list(MIXED)).values
    out = []
    for horizon in HORIZONS:
        model = ContinualProtocols(protocol="optimal", similarity=alike, horizon=horizon, intervals=INTERVALS)
        best = model.theory()
        if not np.all(best.converged):
            raise RuntimeError(f"an optimal protocol of the theory did not converge at horizon {horizon:g}.")
        each = [
            continual_digits([mix], seeds=seeds, intervals=INTERVALS, first_stage=STAGE, second_stage=horizon,
                             protocols={**focus, "optimal": np.asarray(best.fraction)[i]})
            for i, mix in enumerate(MIXED)
        ]  # fmt: skip
        fraction = xr.concat([e.fraction for e in each], xr.Variable("mixing", list(MIXED)))
        out.append(
            xr.concat([e.drop_vars("fraction") for e in each], "mixing", data_vars="all").assign(fraction=fraction)
        )
    kept = ["final_loss", "final_error", "forgetting", "fraction", "linear_similarity", "digits"]
    both: Any = xr.concat(out, xr.Variable("horizon", list(HORIZONS)), combine_attrs="drop_conflicts", data_vars="all")
    return both[kept]


def _with_provenance(data: Any) -> Any:
    study = {"models": ["continual-digits", "continual-protocols"], "data": "scikit-learn digits", **data.attrs}
    return data.assign_attrs(study=json.dumps(study), **provenance())


def draw_digits(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    found, theory, shown = data["forgetting"], data["theory"], data["protocols"]
    figure, axes = plt.subplots(2, 3, figsize=(12.4, 6.6), width_ratios=[1, 1, 1.15])
    for row, name in enumerate(("forgetting", "transfer")):
        for i, arm in enumerate(found.arm.values):
            mean, error = mean_and_error(found[name].sel(arm=arm))
            axes[row, 0].errorbar(found.mixing, mean, error, fmt=f"{MARKERS[i]}-", color=COLOURS[i], linewidth=0.8,
                                  label=LABELS[arm])  # fmt: skip
            axes[row, 1].plot(
                theory.similarity, theory[f"{name}_theory"].sel(arm=arm), color=COLOURS[i], label=LABELS[arm]
            )
        for axis in axes[row, :2]:
            axis.axhline(0, color="0.7", linewidth=0.8, zorder=0)
        axes[row, 0].set(xlabel="pixel mixing γ", ylabel=f"{name} (loss)")
        axes[row, 1].set(xlabel="similarity γ of the teachers", ylabel=f"{name} (loss)")
    seeds = found.sizes["seed"]
    axes[0, 0].set_title(f"digits: forgetting of task 1 ({seeds} seeds)")
    axes[0, 1].set_title("theory: Gaussian inputs, teachers")
    axes[1, 0].set_title("digits: transfer from task 1 to task 2")
    axes[1, 1].set_title("theory")
    axes[0, 0].legend()
    _similarity_axis(axes[0, 0], found)
    for axis, horizon in zip(axes[:, 2], shown.horizon.values, strict=True):
        _protocols(axis, shown.sel(horizon=horizon), float(horizon))
    figure.suptitle("Two tasks in succession on handwritten digits with mixed pixels, beside the theory", fontsize=11)
    return figure


LABELS = {
    "specialised": "specialised, fresh head",
    "shared": "shared, fresh head",
    "head copied": "specialised, copied head",
}


def _similarity_axis(axis: Any, found: Any) -> None:
    """Add a top axis with the similarity of the linear readouts, the counterpart of the theory's γ."""
    alike = found.linear_similarity.mean("seed").isel(arm=0).values
    above = axis.secondary_xaxis("top")
    ticks = np.linspace(0, 1, 6)
    above.set_xticks(ticks, [f"{v:.2f}".replace("-0.00", "0.00") for v in np.interp(ticks, found.mixing.values, alike)])
    above.tick_params(labelsize=7, pad=1)
    above.set_xlabel("correlation of the best linear readouts", fontsize=7.5, labelpad=2)


def _protocols(axis: Any, shown: Any, horizon: float) -> None:
    """Mean loss of both tasks at the end against that of even replay, paired by seed."""
    schedules = [p for p in shown.protocol.values if p != "optimal"]
    shares = np.array([float(p) for p in schedules])
    base = shown.final_loss.sel(protocol=schedules[0])
    for i, mix in enumerate(shown.mixing.values):
        at = (shown.final_loss - base).sel(mixing=mix)
        mean, error = mean_and_error(at.sel(protocol=schedules))
        axis.errorbar(shares, 1e3 * mean, 1e3 * error, fmt=f"{MARKERS[i]}-", color=COLOURS[i], linewidth=0.8,
                      label=f"γ = {mix:g}: task 2, then even replay")  # fmt: skip
        mean, error = mean_and_error(at.sel(protocol="optimal"))
        place = 2 * float(shown.fraction.sel(mixing=mix, protocol="optimal").mean()) - 1
        axis.errorbar([place], [1e3 * mean], [1e3 * error], fmt="*", color=COLOURS[i], markersize=13,
                      markeredgecolor="black", zorder=5, label="the theory's optimal protocol" if i == 2 else None)  # fmt: skip
    axis.axhline(0, color="0.7", linewidth=0.8, zorder=0)
    axis.set(xlabel="fraction of time on task 2 alone (0: even, 1: no replay)",
             ylabel="final loss − even replay  (×10⁻³)")  # fmt: skip
    axis.set_yscale("symlog", linthresh=4)
    axis.set_yticks([-4, -2, 0, 2, 4, 10, 20], ["−4", "−2", "0", "2", "4", "10", "20"])
    axis.set_title(f"protocols on digits, horizon {horizon:g}")
    axis.legend(fontsize=7)


RECIPES = {
    "continual-digits": Recipe(
        digits,
        draw_digits,
        sentence=(
            "Forgetting and transfer on digits with mixed pixels beside the theory; replay protocols, including "
            "the theory's optimum."
        ),
    )
}
