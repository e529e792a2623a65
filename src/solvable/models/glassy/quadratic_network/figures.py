"""Networks with quadratic activations: how many samples it takes to find the teacher, and how the loss then falls."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from solvable.methods.fixed_points.linear_algebra import orthonormal_columns
from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, INK, label, log_axis
from solvable.study import Study

from .model import Fit, QuadraticNetwork, fresh_loss, sample_threshold, search_minimum

CASES = ((8, 1, 8), (8, 2, 8), (8, 4, 8), (8, 8, 8), (16, 2, 16), (8, 2, 3))  # inputs, teachers, units
RATIOS = np.array([0.6, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5])  # samples, in units of the threshold
RANKS = (1, 4, 6)
RATE, STEPS = 2e-3, 150_000  # of plain descent, in units of the number of units: until t = 300


def recover(inputs: int, teachers: int, units: int, numbers: np.ndarray, seeds: int) -> dict[str, np.ndarray]:
    """Minima on the first n of the same samples, for several n and seeds in one compiled program."""
    most = int(numbers.max())

    def one(key: Any, number: Any) -> dict[str, Any]:
        frame_key, start_key, data_key = jax.random.split(key, 3)
        frame = orthonormal_columns(jax.random.normal(frame_key, (inputs, inputs), float))[:, :teachers]
        x = jax.random.normal(data_key, (most, inputs), float)
        star = frame @ frame.T
        mask = (jnp.arange(most) < number).astype(float)
        return search_minimum(
            x, jnp.sum((x @ star) * x, axis=1), mask, jax.random.normal(start_key, (units, inputs)), star
        )

    keys = jax.random.split(jax.random.key(1000 * inputs + 10 * teachers + units), seeds)
    program = jax.jit(jax.vmap(jax.vmap(one, in_axes=(0, None)), in_axes=(None, 0)))
    return {name: np.asarray(v) for name, v in program(keys, jnp.asarray(numbers)).items()}


def descend_plainly(inputs: int, teachers: int, units: int, numbers: np.ndarray, seeds: int, steps: int) -> np.ndarray:
    """Losses on samples and on fresh inputs after plain gradient descent, relative to the start, (2, numbers, seeds).

    Samples and starts are those of `recover`.
    """
    most = int(numbers.max())

    def one(key: Any, number: Any) -> Any:
        frame_key, start_key, data_key = jax.random.split(key, 3)
        frame = orthonormal_columns(jax.random.normal(frame_key, (inputs, inputs), float))[:, :teachers]
        x, star = jax.random.normal(data_key, (most, inputs), float), frame @ frame.T
        fit = Fit(x, jnp.sum((x @ star) * x, axis=1), (jnp.arange(most) < number).astype(float))
        begin = jax.random.normal(start_key, (units, inputs), float)
        end = jax.lax.fori_loop(0, steps, lambda _, w: w - RATE * units * fit(w)[1], begin)
        return jnp.stack([fit(end)[0] / fit(begin)[0], fresh_loss(end, star) / fresh_loss(begin, star)])

    keys = jax.random.split(jax.random.key(1000 * inputs + 10 * teachers + units), seeds)
    program = jax.jit(jax.vmap(jax.vmap(one, in_axes=(0, None)), in_axes=(None, 0)))
    return np.moveaxis(np.asarray(program(keys, jnp.asarray(numbers))), -1, 0)


def plain(quick: bool) -> Any:
    """Plain descent of wide students below and above the threshold."""
    import xarray as xr

    cases, seeds, steps = (CASES[:1], 2, 200) if quick else (CASES[:4], 16, STEPS)
    ratios = np.array([0.75, 1.5])
    found = np.stack([
        descend_plainly(d, m, k, np.rint(ratios * sample_threshold(d, m)).astype(int), seeds, steps) for d, m, k in cases
    ])  # fmt: skip
    what = np.array(cases)
    names = ("final_train", "final_loss")
    table = xr.Dataset(
        {name: (("case", "ratio", "seed"), found[:, i]) for i, name in enumerate(names)}, {"ratio": ratios}
    )
    return table.assign(inputs=("case", what[:, 0]), teachers=("case", what[:, 1]), units=("case", what[:, 2]))


def recovery(quick: bool) -> dict[str, Any]:
    import xarray as xr

    cases, seeds = (CASES[:1], 4) if quick else (CASES, 16)
    names = ("reached", "final_train", "final_loss", "spurious")
    shape = (len(cases), len(RATIOS), seeds)
    found = {name: np.full(shape, np.nan) for name in names}
    numbers = np.zeros(shape[:2])
    for i, (d, m, k) in enumerate(cases):
        numbers[i] = np.rint(RATIOS * sample_threshold(d, m))
        result = recover(d, m, k, numbers[i].astype(int), seeds)
        for name in names:
            found[name][i] = result[name]
    table = xr.Dataset({name: (("case", "ratio", "seed"), v) for name, v in found.items()})
    what = np.array(cases)
    table = table.assign(samples=(("case", "ratio"), numbers)).assign_coords(ratio=RATIOS)
    table = table.assign(inputs=("case", what[:, 0]), teachers=("case", what[:, 1]), units=("case", what[:, 2]))

    times = np.array([0.0, *np.geomspace(0.1, 10.0 if quick else 30.0, 6 if quick else 12)])
    sizes, ranks = ([200], [1]) if quick else ([100, 300, 1000], list(RANKS))
    flow = Study(QuadraticNetwork(times=times), {"teachers": ranks}, sizes=sizes, seeds=4 if quick else 32).run()
    kept = [v for v in flow.data_vars if str(v).startswith(("test_loss", "decay", "train_loss"))]
    return {"": table, "flow": flow[kept], "plain": plain(quick)}


def draw_recovery(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    table, flow = data[""], data["flow"]
    figure, axes = plt.subplots(1, 3, figsize=(14.2, 4.2), layout="constrained")
    seeds = table.sizes["seed"]
    for i, colour in zip(range(table.sizes["case"]), COLOURS, strict=False):
        here = table.isel(case=i)
        d, m, k = (int(here[n]) for n in ("inputs", "teachers", "units"))
        narrow = k < d
        share = here.reached.mean("seed")
        error = np.sqrt(np.maximum(share * (1 - share), 1 / seeds) / seeds)
        words = f"d = {d}, $m^*$ = {m}" + (f", only {k} units" if narrow else "")
        style = {"fmt": "s:" if narrow else "o-", "markersize": 4, "linewidth": 0.9, "color": colour, "label": words}
        axes[0].errorbar(here.samples / sample_threshold(d, m), share, error, **style)
        if m == 2:
            at = here.samples / sample_threshold(d, m)
            axes[1].plot(at, here.final_loss.median("seed"), "s:" if narrow else "o-", markersize=4, linewidth=0.9,
                         color=colour, label=f"fresh inputs; {words}")  # fmt: skip
    axes[0].axvline(1, ymax=0.6, color="0.3", linestyle="--", label="threshold $n_c$")
    axes[0].set(xlabel=r"samples, $n/n_c$", ylabel="fraction of minima that are the teacher", ylim=(-0.06, 1.75))
    axes[0].set_yticks(np.linspace(0, 1, 5))  # the rest of the axis is for the legend
    axes[0].set_title("the teacher is found with\n$n_c$ samples or more")
    axes[0].legend(fontsize=7.5, ncols=2, loc="upper left")

    here = data["plain"].isel(case=[int(m) for m in data["plain"].teachers].index(2))
    axes[1].plot(here.ratio, here.final_loss.median("seed"), "D", markersize=6, mfc="none", color=INK,
                 label=f"plain descent, $m^*$ = {int(here.teachers)}")  # fmt: skip
    axes[1].axvline(1, ymax=0.72, color="0.3", linestyle="--")
    axes[1].axhline(1e-5, color="0.6", linewidth=0.8, label="counts as found below")
    axes[1].set_yscale("log")
    axes[1].set(xlabel=r"samples, $n/n_c$", ylabel="loss on fresh inputs, final / initial")
    axes[1].set_title("below $n_c$ the samples are fitted\nbut the teacher is missed")
    axes[1].set_ylim(1e-15, 1e5)
    axes[1].legend(fontsize=7.5, loc="upper right")

    axis, time = axes[2], flow.time.values
    late = time > 0
    for rank, colour in zip(flow.teachers.values, COLOURS, strict=False):
        here = flow.sel(teachers=rank)
        line = here.test_loss_theory.isel(size=-1) if "size" in here.test_loss_theory.dims else here.test_loss_theory
        axis.plot(time[late], (line * time**2)[late], color=colour, label=f"many samples, $m^*$ = {int(rank)}")
        for size, marker in zip(flow["size"].values, "v^o", strict=False):
            runs = here.test_loss_simulated.sel(size=size) * flow.time**2
            error = runs.std("seed", ddof=1) / np.sqrt(runs.sizes["seed"])
            axis.errorbar(time[late], runs.mean("seed")[..., late], error[..., late], fmt=marker, markersize=3.5, color=colour,
                          label=f"descents, n = {int(size)}" if rank == flow.teachers.values[0] else None)  # fmt: skip
        decay = here.decay_theory
        limit = float(np.ravel(decay)[0])
        if limit > 0:
            axis.plot(time[-1] * 1.15, limit, "*", color=colour, markersize=10, zorder=5)
    log_axis(axis.xaxis)
    axis.set_yscale("log")
    axis.set(xlabel=label("time", "t"), ylabel="$t^2$ times the loss on fresh inputs", ylim=(1e-3, 30))
    axis.set_title("the loss falls as $t^{-2}$, or exponentially for\nfull rank (d = 6); stars: the limit")
    axis.legend(fontsize=7, ncols=2, loc="upper left")
    figure.suptitle("A wide network of squares: sample threshold, and the decay of the loss", fontsize=11)
    return figure


RECIPES = {
    "quadratic-network-recovery": Recipe(
        recovery,
        draw_recovery,
        sentence="How many samples a wide network of squares needs to find its teacher, and how its loss then falls.",
    )
}
