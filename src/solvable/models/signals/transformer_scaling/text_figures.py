"""Small transformers on natural language: what carries over depth, and which shapes pay at equal compute."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvable.contract.claims import Measured, mean_and_error
from solvable.render.figures import Recipe
from solvable.render.pieces import Pieces
from solvable.render.plots import label, log_axis

from .at_once import Table, together, trained
from .figures import NAMES, best_rates, points
from .model import TransformerScaling

MODEL = TransformerScaling(
    data="documentation", steps=400, batch=16, context=64, letters=64, base_width=64, base_depth=2, rate=2.0**-6.5
)
"""The rate is about the best of the base model, for the sweeps of ε and decay."""
LONGER = MODEL.replace(data="library", steps=1996, batch=64, letters=96)
"""Eight million letters: 20 for each weight of the shapes of equal compute, as in the paper."""
SMALL = MODEL.replace(steps=16, batch=4, context=8, letters=16, base_width=16)
SWEPT = {
    "rate": 2.0 ** np.arange(-12.0, -3.0),
    "epsilon": 2.0 ** np.arange(-22.0, 0.0, 4.0),
    "decay": 2.0 ** np.array([-3.0, -1.0, 0.0, 1.0, 2.0, 3.0]),
}
BY_WIDTH = tuple(NAMES)[1:]


def tables(quick: bool = False) -> dict[str, Table]:
    """What both figures show; the shapes have equal compute but for attention: width² × depth."""
    if quick:
        model, longer, deep, shapes = SMALL, SMALL, ((16, 2), (16, 4)), ((32, 2), (16, 8))
    else:
        model, longer, deep = MODEL, LONGER, ((64, 2), (64, 8), (64, 32))
        shapes = ((128, 2), (64, 8), (32, 32))
    every, ends = tuple(NAMES), (deep[0], deep[-1])
    rates, epsilons, decays = (tuple(map(float, x[::4] if quick else x)) for x in SWEPT.values())
    fewer = rates if quick else rates[2:-1]
    return {
        "rate": Table(model, "rate", rates, every, deep, 2),
        "epsilon": Table(model, "epsilon", epsilons, BY_WIDTH, ends, 4),
        "decay": Table(model, "decay", decays, BY_WIDTH, ends, 4),
        "shapes": Table(model, "rate", rates, every, shapes, 4),
        "longer": Table(longer, "rate", fewer, every, (shapes[0], shapes[-1]), 1, at_once=24),
    }


def _computed(names: list[str], quick: bool, pieces: Pieces | None) -> dict[str, Any]:
    chosen = {name: tables(quick)[name] for name in names}
    portions = {name: table.portions() for name, table in chosen.items()}
    found = iter(trained([p for parts in portions.values() for p in parts], pieces or Pieces()))
    return {name: together(chosen[name], [(p, next(found)) for p in parts]) for name, parts in portions.items()}


def text(quick: bool, pieces: Pieces | None = None) -> dict[str, Any]:
    """Rates, ε and decay over depth; minutes on a GPU."""
    return _computed(["rate", "epsilon", "decay"], quick, pieces)


def compute(quick: bool, pieces: Pieces | None = None) -> dict[str, Any]:
    """Rates of shapes of equal compute; minutes on a GPU."""
    found = _computed(["shapes", "longer"], quick, pieces)
    return {"": found["shapes"], "longer": found["longer"]}


# --- numbers ------------------------------------------------------------------------------------------------------------


def harmless(data: Any, swept: str, slack: float = 0.1) -> Any:
    """log₂ of the largest value of a setting whose loss is within `slack` of the best, between points of the grid by a line.

    NaN where no run ended.
    """
    import xarray as xr

    logs = np.log2(data[swept].values)

    def edge(losses: np.ndarray) -> np.ndarray:
        excess = np.where(np.isfinite(losses), losses, 1e9)
        excess = excess - excess.min(-1, keepdims=True) - slack
        last = excess.shape[-1] - 1 - np.argmax((excess <= 0)[..., ::-1], axis=-1)
        upper = np.minimum(last + 1, excess.shape[-1] - 1)
        low, high = (np.take_along_axis(excess, i[..., None], -1)[..., 0] for i in (last, upper))
        share = np.where(upper > last, -low / np.maximum(high - low, 1e-12), 0.0)
        found = logs[last] + share * (logs[upper] - logs[last])
        return np.where(np.isfinite(losses).any(-1), found, np.nan)

    return xr.apply_ufunc(edge, data.final_loss_simulated, input_core_dims=[[swept]])


def tuned_rate(data: Any) -> Any:
    """The best rate of the first shape under each rule, in the mean over seeds: that of the base model."""
    losses = data.final_loss_simulated.isel(shape=0, drop=True).mean("seed", skipna=False).fillna(np.inf)
    return data.rate.isel(rate=losses.argmin("rate").reset_coords(drop=True))


def flops_per_step(data: Any, model: TransformerScaling) -> Any:
    """Floating-point operations of a training step: six per weight and token, and those of the attention's scores."""
    tokens = model.batch * (model.context - 1)
    width, depth = data.width.astype(float), data.depth.astype(float)  # stored as 32-bit integers, which overflow
    return 6 * tokens * depth * (12 * width**2 + 2 * model.context * width)


def loss_at_rate(data: Any, rates: Any) -> Any:
    """Final losses at one rate for each rule, NaN where a run diverged."""
    return data.final_loss_simulated.sel(rate=rates)


def above_best(data: Any) -> Any:
    """Final losses at the best rate of the first shape, above those at the best rate of each shape, in the mean over seeds."""
    means = data.final_loss_simulated.mean("seed", skipna=False).fillna(np.inf)
    own = data.final_loss_simulated.isel(rate=means.argmin("rate"))
    return loss_at_rate(data, tuned_rate(data)).drop_vars("rate") - own.drop_vars("rate")


def saved(data: Any, rule: str, other: str, shape: str, rates: Any) -> Any:
    """The share of training that `rule` saves, by seed: it reaches the final loss of `other` so much earlier.

    Negative where `other` reaches the final loss of `rule` so much earlier.
    """
    import xarray as xr

    at = [
        data.test_loss_simulated.sel(rule=r, shape=shape, rate=float(rates.sel(rule=r)), drop=True)
        for r in (rule, other)
    ]
    steps = data.time.values.astype(float)

    def earlier(losses: np.ndarray, goals: np.ndarray) -> np.ndarray:
        falling = np.minimum.accumulate(losses, axis=-1)
        return np.array([1 - np.interp(-g, -row, steps) / steps[-1] for row, g in zip(falling, goals, strict=True)])

    def share(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
        won = ours[:, -1] <= theirs[:, -1]
        return np.where(won, earlier(ours, theirs[:, -1]), -earlier(theirs, ours[:, -1]))

    return xr.apply_ufunc(share, *(x.transpose("seed", "time") for x in at), input_core_dims=[["time"], ["time"]])


def moved(values: Any, rule: str, shape: int = -1) -> Any:
    """The change of a number from the first shape to another one under a rule, by seed."""
    of_rule = values.sel(rule=rule)
    return of_rule.isel(shape=shape, drop=True) - of_rule.isel(shape=0, drop=True)


def transfer_numbers(data: dict[str, Any]) -> list[Measured]:
    """What decides whether hyperparameters carry over depth; intervals set before the networks of L = 32 were trained."""
    rate = data["rate"]
    best, first = best_rates(rate), int(rate.depth[0])
    found = []
    for shape in range(1, rate.sizes["shape"]):
        for rule, bounds in (
            ("completep", {"above": -1.0, "below": 1.0}),
            ("standard", {"below": -0.5}),
            ("mup", {"below": -0.5}),
        ):
            words = f"octaves from the best rate of L = {first} to that of L = {int(rate.depth[shape])}, text, {NAMES[rule]}"
            found.append(Measured(words, *mean_and_error(moved(best, rule, shape)), **bounds))
    lost = above_best(rate).isel(shape=-1)
    words = f"loss at L = {int(rate.depth[-1])} with the best rate of L = {first}, above that with its own best, text"
    found.append(Measured(f"{words}, CompleteP", *mean_and_error(lost.sel(rule="completep")), below=0.05))
    more = lost.sel(rule="mup") - lost.sel(rule="completep")
    found.append(Measured("the same, μP minus CompleteP", *mean_and_error(more), above=0.0))
    last = int(data["epsilon"].depth[-1])
    for swept, words, width in (("epsilon", "ε", 2.0), ("decay", "weight decay", 1.0)):
        shift = moved(harmless(data[swept], swept), "completep")
        words = f"octaves from the largest harmless {words} of L = {first} to that of L = {last}, text, CompleteP"
        found.append(Measured(words, *mean_and_error(shift), above=-width, below=width))
    shift = moved(harmless(data["decay"], "decay"), "depth-mup")
    found.append(
        Measured("the same of weight decay, depth-μP, whose rates fall with depth", *mean_and_error(shift), above=0.5)
    )
    return found


def compute_numbers(data: dict[str, Any]) -> list[Measured]:
    """What decides whether CompleteP saves compute at the deepest shape; intervals set before the networks were trained."""
    found = []
    for runs, where in ((data[""], "400 steps"), (data["longer"], "20 letters a weight")):
        rates = tuned_rate(runs)
        kept, best = loss_at_rate(runs, rates), runs.final_loss_simulated.fillna(np.inf).min("rate")
        shape = runs["shape"].values[-1]
        for rule in ("mup", "depth-mup"):
            for values, how in ((kept, "rate tuned on the first shape"), (best, "rate tuned on this shape")):
                gain = (values.sel(rule=rule) - values.sel(rule="completep")).sel(shape=shape)
                words = f"loss of {NAMES[rule]} above that of CompleteP, width × depth = {shape}, {where}, {how}"
                found.append(Measured(words, *mean_and_error(gain), above=0.0))
        for rule in ("mup", "depth-mup"):
            share = saved(runs, "completep", rule, shape, rates)
            words = f"share of the training that CompleteP saves against {NAMES[rule]}, {shape}, {where}, rate of the first shape"
            found.append(Measured(words, *mean_and_error(share), above=0.12 if rule == "mup" else 0.0))
        deep = moved(kept, "completep")
        words = f"loss of {shape} above that of {runs['shape'].values[0]} at equal compute, {where}, CompleteP"
        found.append(Measured(words, *mean_and_error(deep), below=0.1))
    return found


# --- pictures -----------------------------------------------------------------------------------------------------------


def _window(losses: Any, above: float) -> tuple[float, float] | None:
    """From just below the lowest mean loss to so much above it; None without any loss."""
    low = float(losses.mean("seed", skipna=False).min())
    return (low - 0.05, low + above) if np.isfinite(low) else None


def draw_text(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    rate = data["rate"]
    figure, axes = plt.subplots(2, 4, figsize=(15.0, 7.2), layout="constrained")
    for axis, rule in zip(axes[0], rate.rule.values, strict=False):
        for i, depth in enumerate(rate.depth.values):
            points(axis, rate.rate, rate.final_loss_simulated.sel(rule=rule).isel(shape=i), i, f"L = {depth}")
        axis.set(xlabel=label("rate of the base model", r"\eta"), title=NAMES[str(rule)],
                 ylim=_window(rate.final_loss_simulated, 1.0))  # fmt: skip
        log_axis(axis.xaxis)
    axes[0, 0].set_ylabel("test loss at the end, per character")
    axes[0, 0].legend()
    best, kept = best_rates(rate), above_best(rate)
    for i, rule in enumerate(rate.rule.values):
        points(axes[1, 0], rate.depth, best.sel(rule=rule), i, NAMES[str(rule)], 3)
        points(axes[1, 1], rate.depth, kept.sel(rule=rule), i, NAMES[str(rule)], 3)
    for axis, words in (
        (axes[1, 0], "best rate, log₂"),
        (axes[1, 1], "loss at the old best rate, above the best"),
    ):
        axis.set(xlabel=label("depth", "L"), title=words)
        log_axis(axis.xaxis)
    axes[1, 0].legend()
    axes[1, 1].set_yscale("symlog", linthresh=0.01)
    for axis, swept in zip(axes[1, 2:], ("epsilon", "decay"), strict=True):
        runs = data[swept]
        for rule in runs.rule.values:
            colour = 3 + list(NAMES).index(str(rule))
            for i, depth in enumerate(runs.depth.values):
                values = runs.final_loss_simulated.sel(rule=rule).isel(shape=i)
                points(axis, runs[swept], values, i, f"{NAMES[str(rule)]}, L = {depth}", colour - i)
        words = {"epsilon": "Adam's ε", "decay": "weight decay"}[swept]
        axis.set(xlabel=f"{words} of the base model", title=f"loss against {words}",
                 ylabel="test loss at the end", ylim=_window(runs.final_loss_simulated, 1.0))  # fmt: skip
        log_axis(axis.xaxis)
        axis.legend(fontsize=7)
    figure.suptitle(
        f"Transformers of width {int(rate.width[0])} on Python's documentation, with hyperparameters of a base model of depth 2",
        fontsize=11,
    )
    return figure


def draw_compute(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    figure, grid = plt.subplots(2, 3, figsize=(13.5, 7.6), layout="constrained")
    words = ("Python's documentation, 400 steps", "Python's library, 20 letters a weight")
    for axes, runs, model, where in zip(grid, (data[""], data["longer"]), (MODEL, LONGER), words, strict=True):
        _draw_shapes(axes, runs, flops_per_step(runs, model), where)
    grid[0, 0].legend()
    figure.suptitle("Shapes of transformers at equal compute", fontsize=11)
    return figure


def _draw_shapes(axes: Any, runs: Any, flops: Any, where: str) -> None:
    """Final losses over shapes, with the rate of the first and with each one's own, and the deepest one's course of training."""
    rates = tuned_rate(runs)
    kept, best = loss_at_rate(runs, rates), runs.final_loss_simulated.min("rate")
    room = min(0.6, 0.02 + 1.5 * float(np.ptp(best.mean("seed").values)))
    for axis, values, words in zip(axes, (kept, best), ("rate tuned on the first shape", "rate tuned on every shape"),
                                   strict=False):  # fmt: skip
        for i, rule in enumerate(runs.rule.values):
            points(axis, range(runs.sizes["shape"]), values.sel(rule=rule), i, NAMES[str(rule)], 3)
        axis.set_xticks(range(runs.sizes["shape"]), list(runs["shape"].values))
        axis.set(xlabel="width × depth, at about equal compute", title=words, ylim=_window(best, room))
    axes[0].set_ylabel(f"test loss at the end, per letter\n({where})")
    deepest = runs["shape"].values[-1]
    for i, rule in enumerate(runs.rule.values):
        curve = runs.test_loss_simulated.sel(rule=rule, shape=deepest, rate=rates.sel(rule=rule)).isel(
            time=slice(1, None)
        )
        points(axes[2], curve.time * float(flops.sel(shape=deepest)), curve, i, NAMES[str(rule)], 3)
    log_axis(axes[2].xaxis)
    axes[2].set(xlabel="floating-point operations of training", title=f"the deepest shape, {deepest}, rate of the first",
                ylabel="test loss")  # fmt: skip


RECIPES = {
    "transformer-scaling-text": Recipe(
        text,
        draw_text,
        resumes=True,
        also=("depth-transfer",),
        sentence="Loss of transformers on text against rate, ε and weight decay of a base model, at depths from 2 to 32.",
    ),
    "transformer-scaling-compute": Recipe(
        compute,
        draw_compute,
        resumes=True,
        sentence="Loss of transformers of different shapes on text at about equal compute, under four rules.",
    ),
}
