"""Networks trained by Langevin dynamics and by plain gradient descent, in regression and classification, beside the theory."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from solvable.contract.compiled import PRECISION
from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, label, log_axis, standard_error

from .classification import LabelEnergy, bayes_classifier, gradient_descent, langevin, stiffness
from .committee import kernel_named
from .model import NEAR, NarrowNetwork
from .networks import Committee, PenalisedLoss, draw_task, slopes

FRESH = 8192
ARMS = {
    "Langevin, regression": {
        "learner": "gibbs",
        "activation": "erf",
        "penalty": 0.05,
        "noise": 0.05,
        "temperature": 0.05,
    },
    "gradient descent, regression": {"learner": "erm", "activation": "erf", "penalty": 0.005, "noise": 0.008},
    "Langevin, classification": {"activation": "abs", "noise": 0.05},
    "Langevin from random weights, regression": {
        "learner": "gibbs",
        "activation": "abs",
        "penalty": 0.05,
        "noise": 0.05,
        "temperature": 0.05,
        "start": "random",
    },
    "Langevin from random weights, classification": {"activation": "abs", "noise": 0.05, "start": "random"},
}
"""Specialisation is of first order for erf, which random weights never find, and continuous for |x|, which they do."""
SAMPLES = {"Langevin, regression": (8.0, 10.0, 14.0), "gradient descent, regression": (6.0, 8.0, 12.0),
           "Langevin, classification": (2.0, 4.0, 8.0), "Langevin from random weights, regression": (2.0, 4.0, 8.0),
           "Langevin from random weights, classification": (2.0, 4.0, 8.0)}  # fmt: skip
UNITS = {36: 2, 100: 4, 144: 6}
SIZES = (100, 144)
LARGE = 3
"""As many arms are trained at all sizes, the others at the first one."""
SLOWER = 4
"""How many times longer random weights are trained."""
GRID = np.geomspace(0.5, 16.0, 41)


def train(arm: str, ratio: float, size: int, units: int, steps: int, seeds: int) -> np.ndarray:
    """Overlap with the teacher, and excess loss (regression) or error (classification), of trained networks, (seeds, 2)."""
    values, network = ARMS[arm], Committee(ARMS[arm]["activation"])
    number, noise = round(ratio * units * size), jnp.asarray(values["noise"], jnp.float32)
    single, together = stiffness(values["activation"], ratio, units)
    unmatched = values.get("start") == "random"
    length = steps * (SLOWER if unmatched else 1)

    def one(seed: Any) -> Any:
        key = jax.random.fold_in(jax.random.key(round(100 * ratio)), seed)
        task = draw_task(network, jax.random.fold_in(key, 0), size, units, number, FRESH, 1, noise, jnp.float32)
        # at an overlap of 0.7 with the teacher, below every solution that is reached here, or at random
        near = np.float32(0.0 if unmatched else NEAR)
        start = near * task.teacher + np.sqrt(1 - near**2) * task.random[0]

        def walk(energy: Any, top: float, sum_top: float) -> Any:
            step, mobility = (jnp.asarray(v, jnp.float32) for v in (0.1 / top, top / sum_top))
            return langevin(energy, start, jax.random.fold_in(key, 1), step, mobility, length, 32)

        if arm.endswith("classification"):
            energy = LabelEnergy(network, task.inputs, jnp.sign(task.labels), noise)
            ends = walk(energy, 1 + single / values["noise"], 1 + together / values["noise"])
            mean = jnp.mean(jax.vmap(lambda w: network(w, task.fresh))(ends), axis=0)
            score = jnp.mean((mean * task.truth < 0).astype(jnp.float32))
        else:
            penalty, heat = values["penalty"], values.get("temperature", 1.0)
            loss = PenalisedLoss(
                network, task.inputs, task.labels, *(jnp.asarray(v, jnp.float32) for v in (penalty, heat))
            )
            if arm.startswith("Langevin"):
                ends = walk(lambda w: loss(w)[0], (single + penalty) / heat, (together + penalty) / heat)
            else:
                rate = jnp.asarray(0.7 / (together + penalty), jnp.float32)
                ends = gradient_descent(lambda w: loss(w)[0], start, rate, 4 * steps)[0][None]
            gaps = task.truth[None] - jax.vmap(lambda w: network(w, task.fresh))(ends)
            score = 0.5 * jnp.mean(gaps**2)
        # units that started at random are those of the teacher in another order
        overlap = jnp.where(unmatched, jnp.nan, jnp.mean(ends * task.teacher[None]))
        return jnp.stack([overlap, score])

    with jax.default_matmul_precision(PRECISION):
        return np.asarray(jax.jit(jax.vmap(one))(jnp.arange(seeds)))


def lines(arm: str, ratios: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The theory of one arm: overlap, and excess loss or error."""
    if arm.endswith("classification"):
        values = ARMS[arm]
        kernel, linear = kernel_named(values["activation"], unit=True), slopes(values["activation"])[0]
        noise = jnp.asarray(values["noise"])
        start = 0.05 if values.get("start") == "random" else 0.99
        found = jax.jit(jax.vmap(lambda a: bayes_classifier(kernel, linear, a, noise, start)))(jnp.asarray(ratios))
        there = np.asarray(found.converged)
        return np.where(there, found.overlap, np.nan), np.where(there, found.error, np.nan)
    found = NarrowNetwork(samples=ratios, **ARMS[arm]).theory()
    overlap, excess = np.asarray(found.overlap), np.asarray(found.excess_loss)
    # the solver misses the specialised solution on some intervals beyond its spinodal: nothing is predicted there
    beyond = np.flatnonzero(overlap > 0.5)
    lost = (overlap < 0.5) & (ratios > (ratios[beyond[0]] if beyond.size else np.inf))
    return np.where(lost, np.nan, overlap), np.where(lost, np.nan, excess)


def _at(both: tuple[np.ndarray, np.ndarray], begin: int) -> tuple[np.ndarray, np.ndarray]:
    return both[0][begin:], both[1][begin:]


def training(quick: bool, pieces: Any) -> dict[str, Any]:
    import xarray as xr

    every, seeds, steps = ((36,), 2, 200) if quick else (SIZES, 10, 4000)
    table = xr.Dataset(coords={"arm": list(ARMS), "samples": GRID, "size": list(every), "place": [0, 1, 2]})
    table["units"] = ("size", np.array([UNITS[d] for d in every]))
    table["at"] = (("arm", "place"), np.array([SAMPLES[arm] for arm in ARMS]))
    both = [lines(arm, GRID) for arm in ARMS]
    expected = [_at(lines(arm, np.append(GRID, SAMPLES[arm])), len(GRID)) for arm in ARMS]
    for i, name in enumerate(("overlap", "excess")):
        table[f"{name}_theory"] = (("arm", "samples"), np.stack([b[i] for b in both]))
        table[f"{name}_expected"] = (("arm", "place"), np.stack([e[i] for e in expected]))
    found = np.full((2, len(ARMS), 3, len(every), seeds), np.nan)  # NaN: not trained at this size
    for size in every:
        for i, arm in enumerate(ARMS if size == every[0] else list(ARMS)[:LARGE]):
            for j, ratio in enumerate(SAMPLES[arm]):
                runs = pieces.get(
                    f"{arm}, {ratio:g}, d = {size}",
                    [size, UNITS[size], steps, seeds, ARMS[arm]],
                    lambda a=arm, r=ratio, d=size: {"runs": train(a, r, d, UNITS[d], steps, seeds)},
                )
                found[:, i, j, every.index(size)] = runs["runs"].T
    for i, name in enumerate(("overlap", "excess")):
        table[f"{name}_simulated"] = (("arm", "place", "size", "seed"), found[i])
    return {"": table}


def draw_training(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    table = data[""]
    number = table.sizes["arm"]
    columns = min(number, 3)
    rows = -(-number // columns)
    figure, grid = plt.subplots(rows, columns, figsize=(4.4 * columns, 3.7 * rows), layout="constrained", squeeze=False)
    for axis in grid.flat[number:]:
        axis.axis("off")
    for axis, arm in zip(grid.flat, table.arm.values, strict=False):
        here = table.sel(arm=arm)
        # a transition of first order is not a slope
        jump = np.flatnonzero(np.diff(here.overlap_theory.values) > 0.3) + 1
        at, excess = (np.insert(v.values, jump, np.nan) for v in (table.samples, here.excess_theory))
        axis.plot(at, excess, color=COLOURS[0], label="theory, $d \\to \\infty$")
        for size, units, colour in zip(table["size"].values, table.units.values, COLOURS[1:], strict=False):
            runs = here.excess_simulated.sel(size=size)
            if not np.isfinite(runs).any():
                continue
            error = standard_error(runs)
            axis.errorbar(here["at"], runs.mean("seed"), error, fmt="o", color=colour, markersize=4.5,
                          label=f"d = {int(size)}, K = {int(units)}")  # fmt: skip
        classify = str(arm).endswith("classification")
        axis.set(xlabel=label("samples per weight", r"\alpha"), ylabel="error on the clean sign" if classify else "excess loss",
                 yscale="log")  # fmt: skip
        log_axis(axis.xaxis)
        axis.set_title(f"{arm} ({ARMS[str(arm)]['activation']})")
        axis.legend(fontsize=8)
    figure.suptitle(
        "Narrow networks trained from an overlap of 0.7 with the teacher, or from random weights\n(gaps: the transition, and "
        "where the theory finds no specialised solution)",
        fontsize=11,
    )
    return figure


RECIPES = {
    "narrow-network-training": Recipe(
        training,
        draw_training,
        resumes=True,
        sentence="Losses of narrow networks trained by Langevin dynamics and gradient descent, in regression and classification.",
    )
}
