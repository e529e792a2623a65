"""The RL perceptron: where punishment traps a student, speed against accuracy, and the best schedules."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, MARKERS, label, standard_error
from solvable.study import Study, provenance

from .model import RLPerceptron

SLACK = {"all right (n = T)": 0, "one may fail (n = T - 1)": 1, "two may fail (n = T - 2)": 2}
TRAPPED = {"steps": 13, "punishment": 0.05}


def phases(quick: bool) -> dict[str, Any]:
    size, seeds = (50, 3) if quick else (300, 8)
    # from both sides of the separatrix
    times = np.linspace(0.0, 40.0, 81)
    portrait = Study(
        RLPerceptron(**TRAPPED, times=times), {"initial_alignment": [0.4, 0.48, 0.53, 0.61]}, sizes=[size], seeds=seeds
    ).run()
    # number of right actions that is enough
    latest = 20.0 if quick else 100.0
    times = np.concatenate([[0.0], np.geomspace(0.5, latest, 16)])
    needed = [9, 13] if quick else [7, 9, 11, 13]
    accuracy = Study(
        RLPerceptron(rule="enough", steps=13, times=times), {"needed": needed}, sizes=[size], seeds=seeds
    ).run()
    # learning rates and episode lengths
    arms = {
        "rate 1": {},
        "rate 3": {"reward": 3.0},
        "best rate": {"schedule": "best-rate"},
        "best rate and length": {"schedule": "best-rate-and-length"},
    }
    if quick:  # one program less to compile
        del arms["best rate"]
    schedules = Study(RLPerceptron(steps=12, times=times), arms=arms, sizes=[size], seeds=seeds).run()
    return {"": portrait, "accuracy": accuracy, "schedules": schedules, "theory": _theory(8 if quick else 1)}


def _theory(every: int) -> Any:
    """Theory only: the critical share of punishment, and the portrait's flow, fixed points and separatrix."""
    import jax
    import jax.numpy as jnp
    import xarray as xr

    steps = np.arange(2, 27, every)
    shares = np.full((len(SLACK), len(steps)), np.nan)
    for i, slack in enumerate(SLACK.values()):
        for j, length in enumerate(steps.tolist()):
            if length > slack:
                model = RLPerceptron(rule="enough", steps=length, needed=length - slack)
                shares[i, j] = float(model.threshold())
    model = RLPerceptron(**TRAPPED)
    rho, log_norm = np.linspace(-0.1, 0.995, 45), np.linspace(np.log(2e-6), np.log(20.0), 45)
    grid = [jnp.asarray(x.ravel()) for x in np.meshgrid(rho, log_norm)]
    flow = np.asarray(jax.vmap(lambda r, q: jnp.stack(model.velocity(r, q)))(*grid)).T.reshape(2, 45, 45)
    norms = np.geomspace(4e-3, 20.0, 120)
    points = [(p.alignment, p.norm) for p in model.fixed_points()]
    data = xr.Dataset(
        {
            "threshold": (("rule", "steps"), shares),
            "flow": (("component", "log_norm", "alignment"), flow),
            "separatrix": (("norm",), model.separatrix(norms)),
            "fixed_points": (("kind", "coordinate"), np.array(points)),
        },
        coords={
            "rule": list(SLACK),
            "steps": steps.astype(float),
            "alignment": rho,
            "log_norm": log_norm,
            "norm": norms,
        },
    )
    return data.assign_attrs(study=json.dumps({"models": ["rl-perceptron"], **TRAPPED}), **provenance())


def draw_phases(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(10.6, 7.6))
    _portrait(axes[0, 0], data[""], data["theory"])
    _phase_diagram(axes[0, 1], data["theory"])
    _accuracy(axes[1, 0], data["accuracy"])
    _schedules(axes[1, 1], data["schedules"])
    figure.suptitle("A perceptron rewarded for whole episodes of right actions", fontsize=11)
    return figure


def _portrait(axis: Any, data: Any, theory: Any) -> None:
    along, up = theory.flow.values
    decades = theory.log_norm.values / np.log(10)
    axis.streamplot(
        theory.alignment.values,
        decades,
        along,
        up / np.log(10),
        color="0.75",
        linewidth=0.7,
        arrowsize=0.7,
        density=1.1,
    )
    axis.plot(theory.separatrix, np.log10(theory.norm), color=COLOURS[6], linewidth=1.8, label="separatrix")
    trap, saddle = theory.fixed_points.values
    axis.plot(trap[0], np.log10(trap[1]), "o", color=COLOURS[1], markersize=8, label="trap", zorder=5)
    axis.plot(saddle[0], np.log10(saddle[1]), "X", color=COLOURS[6], markersize=8, label="saddle", zorder=5)
    size = int(data["size"][-1])
    for start in data.initial_alignment.values:
        at = data.sel(initial_alignment=start)
        fails = float(at.alignment_theory[-1]) < 0.5
        colour = COLOURS[1] if fails else COLOURS[0]
        axis.plot(at.alignment_theory, np.log10(at.norm_theory), color=colour, linewidth=1.6)
        runs = at.sel(size=size)
        for seed in range(3):
            one = runs.isel(seed=seed)
            axis.plot(
                one.alignment_simulated, np.log10(one.norm_simulated), ".", color=colour, markersize=3.5, alpha=0.7
            )
    axis.set(xlim=(-0.1, 1.0), ylim=(decades[0], decades[-1]))
    axis.set(xlabel=label("alignment", r"\rho"), ylabel=r"squared norm of the student, $\log_{10} Q$")
    axis.set_title(rf"T = 13, $\eta_2$ = 0.05: flow (lines), three students of D = {size} each (dots)")
    axis.legend(loc="lower right")


def _phase_diagram(axis: Any, data: Any) -> None:
    steps = data.steps.values
    for rule, colour, dash in zip(SLACK, (COLOURS[0], COLOURS[2], COLOURS[3]), ("-", "--", ":"), strict=True):
        axis.plot(steps, data.threshold.sel(rule=rule), dash, color=colour, marker="o", markersize=3, label=rule)
    shown = data.threshold.sel(rule="all right (n = T)")
    axis.fill_between(steps, shown, 1.0, color=COLOURS[1], alpha=0.10, linewidth=0)
    axis.plot(13, 0.05 / 1.05, "*", color=COLOURS[1], markersize=11, label="portrait on the left")
    axis.text(15.5, 0.25, "trapped unless the start\nis above the separatrix", fontsize=9)
    axis.text(3, 2.5e-5, "always learns", fontsize=9)
    axis.set(yscale="log", ylim=(1e-5, 1), xlim=(steps[0], steps[-1]))
    axis.set(xlabel=label("steps", "T"), ylabel=r"critical share of punishment $\eta_2/(\eta_1+\eta_2)$")
    axis.set_title("phases: where f(ρ) touches zero")
    axis.legend(loc="lower left", bbox_to_anchor=(0.0, 0.12))


def _accuracy(axis: Any, data: Any) -> None:
    size = int(data["size"][-1])
    for i, needed in enumerate(data.needed.values):
        at = data.sel(needed=needed)
        _line_and_points(axis, at.time, 1 - at.test_error_theory, 1 - at.test_error_simulated.sel(size=size), i,
                         f"n = {needed}")  # fmt: skip
    axis.set(xscale="log", xlabel=label("time", "t"), ylabel="right actions $P$", ylim=(0.55, None))
    axis.set_title(f"speed against accuracy: reward for n of 13 (points: D = {size})")
    axis.legend()


def _schedules(axis: Any, data: Any) -> None:
    size = int(data["size"][-1])
    for i, arm in enumerate(data.arm.values):
        at = data.sel(arm=arm)
        i = 2 if arm == "best rate" else 3 if "length" in str(arm) else i
        _line_and_points(axis, at.time, at.test_error_theory, at.test_error_simulated.sel(size=size), i, str(arm))
    axis.set(xscale="log", yscale="log", xlabel=label("time", "t"), ylabel=label("test_error", "1-P"))
    axis.set_title(f"schedules, T = 12 at most (points: D = {size})")
    axis.legend(loc="lower left")
    best = data.sel(arm="best rate and length")
    inset = axis.inset_axes((0.46, 0.12, 0.26, 0.24))
    inset.step(best.time[1:], best.length_theory[1:], where="post", color=COLOURS[3], linewidth=1.3)
    inset.set(xscale="log", ylim=(0, 13))
    inset.set_title("best length T(t)", fontsize=8, pad=2)
    inset.tick_params(labelsize=7)


def _line_and_points(axis: Any, time: Any, line: Any, runs: Any, i: int, name: str) -> None:
    some = slice(1, None)
    axis.plot(time[some], line[some], color=COLOURS[i], label=name)
    error = standard_error(runs)
    axis.errorbar(time[some], runs.mean("seed")[some], error[some], fmt=MARKERS[i], color=COLOURS[i], markersize=3.4)


RECIPES = {
    "rl-perceptron-phases": Recipe(
        phases,
        draw_phases,
        sentence="Where punishment traps a perceptron that learns from rewards; speed against accuracy; the best schedules.",
    )
}
