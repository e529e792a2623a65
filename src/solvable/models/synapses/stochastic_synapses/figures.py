"""Loss and errors against the sharpness, the success of annealed descent, and the neighbourhood of its solutions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from solvable.model import simulate_batch
from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, label

from .._points import by_size, share_solved
from .annealing import anneal, descend_clipped, schedule
from .model import StochasticSynapses
from .neighbours import compare

SHOWN = {"random": (0.5, 0.75), "teacher": (0.5, 1.0)}


def measured(labels: str, alphas: Any, values: Any, size: int, seeds: int) -> dict[str, np.ndarray]:
    """Simulated observables by α, sharpness and seed, with one compiled program per α."""
    out: dict[str, list[np.ndarray]] = {}
    for alpha in alphas:
        model = StochasticSynapses(labels=labels, samples=alpha)
        keys = jnp.stack([model.replace(sharpness=q).key(size, seed) for q in values for seed in range(seeds)])
        found = simulate_batch(model, {"sharpness": np.repeat(values, seeds)}, keys, size)
        for name, v in found.items():
            out.setdefault(name, []).append(np.asarray(v).reshape(len(values), seeds))
    return {name: np.stack(v) for name, v in out.items()}


def annealed_success(
    alphas: Any, size: int, seeds: int, *, steps: int = 40, stages: int = 40, together: int = 16
) -> dict[str, np.ndarray]:
    """Success of annealed descent on storage, and of a baseline that descends on clipped weights, by α and seed.

    `solved`: the signs of the means were a solution at some step, first at the sharpness `solved_at`; `clipped_solved`
    and `clipped_signs_solved`: so were the clipped weights, or their signs, on the same patterns after as many steps.
    """
    plan = jnp.asarray(schedule(stages))

    def one(key, rows):
        to_draw, to_start = jax.random.split(key)
        patterns = jnp.where(jax.random.bernoulli(to_draw, 0.5, (rows, size)), 1.0, -1.0).astype(jnp.float32)
        start = 1e-2 * jax.random.normal(to_start, (size,), jnp.float32)
        found = anneal(patterns, jnp.ones(rows, jnp.float32), plan, start, steps=steps)
        plain = descend_clipped(patterns, start, steps=steps * len(plan))
        return {
            "solved": found.solved,
            "solved_at": found.solved_at,
            "clipped_solved": plain.solved,
            "clipped_signs_solved": plain.signs_solved,
        }

    each = []
    for alpha in alphas:
        rows = round(alpha * size)
        run = jax.jit(lambda keys, rows=rows: jax.lax.map(lambda k: one(k, rows), keys, batch_size=together))
        each.append(run(jax.random.split(jax.random.key(round(1000 * alpha)), seeds)))
    return {name: np.stack([np.asarray(e[name], float) for e in each]) for name in each[0]}


LARGE = (0.5, 0.6, 0.65, 0.7, 0.75)  # patterns per weight of the largest systems


def sharpening(quick: bool) -> dict[str, Any]:
    import xarray as xr

    lines = np.linspace(0.02, 0.96, 9 if quick else 48)
    points = np.array([0.3, 0.7]) if quick else np.array([0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95])
    size, seeds = (51, 2) if quick else (401, 16)
    parts = {}
    for labels, alphas in SHOWN.items():
        grid = StochasticSynapses(labels=labels, samples=np.array(alphas)[:, None])
        theory, there = (grid.replace(sharpness=q[None, :]).theory() for q in (lines, points))
        found = measured(labels, alphas, points, size, seeds)
        table = xr.Dataset(coords={"samples": list(alphas), "line": lines, "sharpness": points}, attrs={"size": size})
        for name in theory:
            table[name] = (("samples", "line"), np.asarray(theory[name]))
            table[f"{name}_expected"] = (("samples", "sharpness"), np.asarray(there[name]))
        for name, v in found.items():
            if name != "converged":
                table[f"{name}_simulated"] = (("samples", "sharpness", "seed"), v)
        parts[labels] = table
    alphas = [0.3] if quick else [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.65, 0.7, 0.75]
    sizes, number = ([51], 2) if quick else ([201, 401], 16)
    each = [
        annealed_success(alphas, n, number, **({"stages": 4, "steps": 10} if quick else {"stages": 20})) for n in sizes
    ]
    parts["success"] = by_size(each, sizes, alphas)
    if not quick:  # a minute on an accelerator
        each = [annealed_success(LARGE, n, 32, stages=20, together=32) for n in (1001, 2001)]
        parts["large"] = by_size(each, (1001, 2001), LARGE)
    return parts


def draw_sharpening(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(13.5, 4.4), layout="constrained")

    def draw(axis, table, name, alpha, colour, words, style="-"):
        here = table.sel(samples=alpha)
        inside = here.multiplier > 0  # elsewhere the minimum on the sphere may not be unique
        axis.plot(here.line, here[name].where(inside), style, color=colour, label=words)
        axis.plot(here.line, here[name].where(~inside), style, color=colour, alpha=0.35)
        runs = here[f"{name}_simulated"]
        error = runs.std("seed", ddof=1) / np.sqrt(runs.sizes["seed"])
        axis.errorbar(here.sharpness, runs.mean("seed"), error, fmt="o", color=colour, markersize=3.5)

    def finish(axis, table, words):
        lanes = f"points: $N$ = {table.attrs['size']}, {table.sizes['seed']} systems"
        axis.set_title(f"{words} ({lanes})\npale lines: other minima are possible", fontsize=9)
        axis.set(xlabel=label("sharpness", "q_*"), xlim=(0, 1))

    table = data["random"]
    names = (("train_loss", "loss", "-"), ("sampled_error", "error of drawn weights", "--"),
             ("train_error", "error of the signs", "-."))  # fmt: skip
    for i, alpha in enumerate(table.samples.values):
        for name, words, style in names:
            draw(axes[0], table, name, alpha, COLOURS[i], f"{words}, $\\alpha$ = {alpha:g}", style)
    axes[0].set(ylabel="loss and errors on the training patterns")
    finish(axes[0], table, "storage of random labels")
    axes[0].legend(fontsize=7)
    table = data["teacher"]
    for i, alpha in enumerate(table.samples.values):
        draw(axes[1], table, "test_error", alpha, COLOURS[i], f"means, $\\alpha$ = {alpha:g}", "--")
        draw(axes[1], table, "binarised_error", alpha, COLOURS[i], f"signs, $\\alpha$ = {alpha:g}")
    axes[1].set(ylabel="error on fresh patterns")
    finish(axes[1], table, "a binary teacher")
    axes[1].set_ylim(top=0.42)
    axes[1].legend(fontsize=7.5, ncols=2, loc="upper left")
    runs = data["success"]
    for i, size in enumerate(data["large"]["size"].values if "large" in data else ()):
        share, bars = share_solved(data["large"].solved.sel(size=size).transpose("samples", "seed"))
        axes[2].errorbar(data["large"].samples - 0.004 * (i + 1), share, bars, fmt="^-", linewidth=0.8, color=COLOURS[i + 2],
                         markersize=4, label=f"means, then signs, $N$ = {size}")  # fmt: skip
    kinds = (("solved", "o-", "means, then signs"), ("clipped_signs_solved", "s:", "clipped weights, then signs"))
    for i, size in enumerate(runs["size"].values):
        for name, style, words in kinds:
            share, bars = share_solved(runs[name].sel(size=size).transpose("samples", "seed"))
            axes[2].errorbar(runs.samples + 0.004 * i, share, bars, fmt=style, linewidth=0.8, color=COLOURS[i],
                             markersize=4, markerfacecolor=COLOURS[i] if name == "solved" else "white",
                             label=f"{words}, $N$ = {size}")  # fmt: skip
    axes[2].set(xlabel=label("patterns per weight", r"\alpha"), ylabel="fraction of systems solved", ylim=(-0.05, 1.05))
    axes[2].set_title(
        f"annealed descent on the means, and a baseline\n({runs.sizes['seed']} systems per point; triangles: 32)",
        fontsize=9,
    )
    axes[2].legend(fontsize=7, loc="upper left")
    axes[2].set_ylim(-0.05, 1.45)
    return figure


CASES = {"random": 0.5, "teacher": 0.75}


def neighbourhoods(quick: bool) -> dict[str, Any]:
    import xarray as xr

    sizes, systems = ([9, 11], 3) if quick else ([15, 21], 64)
    table = xr.Dataset(coords={"labels": list(CASES), "size": sizes, "radius": np.arange(max(sizes) + 1)})
    table["samples"] = ("labels", list(CASES.values()))
    found = {(labels, n): compare(labels, CASES[labels], n, systems) for labels in CASES for n in sizes}
    for name, first in next(iter(found.values())).items():
        rows = [[np.asarray(found[labels, n][name], float) for n in sizes] for labels in CASES]
        if first.ndim == 1:
            table[name] = (("labels", "size", "system"), np.array(rows))
            continue
        wide = np.full((len(CASES), len(sizes), systems, max(sizes) + 1), np.nan)
        for i, row in enumerate(rows):
            for j, values in enumerate(row):
                wide[i, j, :, : values.shape[1]] = values
        table[name] = (("labels", "size", "system", "radius"), wide)
    return {"": table}


def draw_neighbourhoods(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    table = data[""]
    figure, axes = plt.subplots(1, 3, figsize=(13.5, 4.2), layout="constrained")
    groups = (("found", "found by descent", "o"), ("typical", "drawn from all solutions", "s"))

    def mean(values):
        number = np.isfinite(values).sum("system")
        return values.mean("system"), values.std("system", ddof=1) / np.sqrt(number)

    for i, size in enumerate(table["size"].values):
        for name, words, marker in groups:
            here = table[f"{name}_near"].sel(labels="random", size=size)
            both = table.found_near.sel(labels="random", size=size).notnull()
            centre, error = mean(here.where(both))
            axes[0].errorbar(table.radius / size, centre, error, fmt=f"{marker}-", color=COLOURS[i], markersize=4,
                             linewidth=0.8, markerfacecolor=COLOURS[i] if name == "found" else "white",
                             label=f"{words}, $N$ = {size}")  # fmt: skip
    axes[0].set(xlabel="Hamming distance over $N$", ylabel="log(number of solutions within) over $N$", xlim=(0, 0.6))
    alpha = {name: float(table.samples.sel(labels=name)) for name in CASES}
    axes[0].set_title(f"random labels, $\\alpha$ = {alpha['random']:g}: all solutions enumerated", fontsize=9)
    axes[0].legend(fontsize=8)
    for axis, what, cases, words in (
        (axes[1], "flipped_error", ("random", "teacher"), "training error after two weights are flipped"),
        (axes[2], "fresh_error", ("teacher",), "error on fresh patterns"),
    ):
        for i, labels in enumerate(cases):
            for name, kind, marker in groups:
                both = table[f"found_{what}"].sel(labels=labels).notnull()
                centre, error = mean(table[f"{name}_{what}"].sel(labels=labels).where(both))
                place = table["size"] + (0.25 if name == "found" else -0.25) + 0.5 * i
                colour = COLOURS[CASES_COLOUR[labels]]
                axis.errorbar(place, centre, error, fmt=marker, color=colour, markersize=5,
                              markerfacecolor=colour if name == "found" else "white",
                              label=f"{kind}, {labels} labels, $\\alpha$ = {alpha[labels]:g}")  # fmt: skip
        axis.set(xlabel=label("weights", "N"), ylabel=words, xlim=(table["size"][0] - 2, table["size"][-1] + 2))
        axis.set_xticks(table["size"].values)
        axis.set_ylim(bottom=0)
        axis.set_title(f"{table.sizes['system']} systems of each size", fontsize=9)
        axis.legend(fontsize=7.5)
    return figure


CASES_COLOUR = {"random": 0, "teacher": 1}

RECIPES = {
    "stochastic-synapses-sharpening": Recipe(
        sharpening,
        draw_sharpening,
        sentence="Means of binary weights as they sharpen: loss and errors against theory, generalisation of the signs, success.",
    ),
    "stochastic-synapses-neighbours": Recipe(
        neighbourhoods,
        draw_neighbourhoods,
        sentence="Solutions found by descent on the means have more solutions nearby than typical ones.",
    ),
}
