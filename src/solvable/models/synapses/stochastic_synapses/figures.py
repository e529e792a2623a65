"""Loss and errors against the sharpness, what the signs generalise, and the success of annealed descent."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from solvable.model import simulate_batch
from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, label

from .annealing import anneal
from .model import StochasticSynapses

SHOWN = {"random": (0.5, 0.75), "teacher": (0.5, 1.0)}


def measured(labels: str, alphas: Any, values: Any, size: int, seeds: int) -> dict[str, np.ndarray]:
    """Simulated observables by α, sharpness and seed, in one program for each α."""
    out: dict[str, list[np.ndarray]] = {}
    for alpha in alphas:
        model = StochasticSynapses(labels=labels, samples=alpha)
        keys = jnp.stack([model.replace(sharpness=q).key(size, seed) for q in values for seed in range(seeds)])
        found = simulate_batch(model, {"sharpness": np.repeat(values, seeds)}, keys, size)
        for name, v in found.items():
            out.setdefault(name, []).append(np.asarray(v).reshape(len(values), seeds))
    return {name: np.stack(v) for name, v in out.items()}


def schedule(stages: int = 40, last: float = 0.998) -> np.ndarray:
    """Sharpness from 0.1 to 0.9 in even steps, then 1 − q in even ratios."""
    return np.concatenate([np.linspace(0.1, 0.9, stages), 1 - np.geomspace(0.1, 1 - last, stages)[1:]])


def annealed_success(alphas: Any, size: int, seeds: int, *, steps: int = 40, stages: int = 40) -> dict[str, np.ndarray]:
    """Whether the signs solved at any step of an annealing of storage, and at which sharpness, by α and seed."""
    plan = jnp.asarray(schedule(stages))

    def one(key, rows):
        to_draw, to_start = jax.random.split(key)
        patterns = jnp.where(jax.random.bernoulli(to_draw, 0.5, (rows, size)), 1.0, -1.0).astype(jnp.float32)
        start = 1e-2 * jax.random.normal(to_start, (size,), jnp.float32)
        found = anneal(patterns, jnp.ones(rows, jnp.float32), plan, start, steps=steps)
        return found.solved, found.solved_at

    solved, at = [], []
    for alpha in alphas:
        rows = round(alpha * size)
        run = jax.jit(lambda keys, rows=rows: jax.lax.map(lambda k: one(k, rows), keys, batch_size=16))
        a, b = run(jax.random.split(jax.random.key(round(1000 * alpha)), seeds))
        solved.append(np.asarray(a, float))
        at.append(np.asarray(b))
    return {"solved": np.array(solved), "solved_at": np.array(at)}


def sharpening(quick: bool) -> dict[str, Any]:
    import xarray as xr

    lines = np.linspace(0.02, 0.96, 9 if quick else 48)
    points = np.array([0.3, 0.7]) if quick else np.array([0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95])
    size, seeds = (51, 2) if quick else (301, 6)
    parts = {}
    for labels, alphas in SHOWN.items():
        theory = StochasticSynapses(labels=labels, samples=np.array(alphas)[:, None], sharpness=lines[None, :]).theory()
        found = measured(labels, alphas, points, size, seeds)
        table = xr.Dataset(coords={"samples": list(alphas), "line": lines, "sharpness": points}, attrs={"size": size})
        for name in theory:
            table[name] = (("samples", "line"), np.asarray(theory[name]))
        for name, v in found.items():
            if name != "converged":
                table[f"{name}_simulated"] = (("samples", "sharpness", "seed"), v)
        parts[labels] = table
    alphas = [0.3] if quick else [0.3, 0.4, 0.5, 0.6, 0.65, 0.7, 0.75]
    sizes, number = ([51], 2) if quick else ([201, 401], 8)
    each = [
        annealed_success(alphas, n, number, **({"stages": 4, "steps": 10} if quick else {"stages": 20})) for n in sizes
    ]
    parts["success"] = xr.Dataset(
        {name: (("size", "samples", "seed"), np.stack([e[name] for e in each])) for name in each[0]},
        coords={"size": sizes, "samples": alphas},
    )
    return parts


def draw_sharpening(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(13.5, 4.2), layout="constrained")

    def shown(axis, table, name, alpha, colour, words, style="-"):
        here = table.sel(samples=alpha)
        axis.plot(here.line, here[name], style, color=colour, label=words)
        runs = here[f"{name}_simulated"]
        error = runs.std("seed", ddof=1) / np.sqrt(runs.sizes["seed"])
        axis.errorbar(here.sharpness, runs.mean("seed"), error, fmt="o", color=colour, markersize=3.5)

    table = data["random"]
    names = (("train_loss", "loss", "-"), ("sampled_error", "error of drawn weights", "--"),
             ("train_error", "error of the signs", "-."))  # fmt: skip
    for i, alpha in enumerate(table.samples.values):
        for name, words, style in names:
            shown(axes[0], table, name, alpha, COLOURS[i], f"{words}, $\\alpha$ = {alpha:g}", style)
    axes[0].set(xlabel=label("sharpness", "q_*"), ylabel="on the training patterns", xlim=(0, 1))
    axes[0].set_title(f"storage of random labels (points: $N$ = {table.attrs['size']})", fontsize=9)
    axes[0].legend(fontsize=7)
    table = data["teacher"]
    for i, alpha in enumerate(table.samples.values):
        shown(axes[1], table, "test_error", alpha, COLOURS[i], f"means, $\\alpha$ = {alpha:g}", "--")
        shown(axes[1], table, "binarised_error", alpha, COLOURS[i], f"signs, $\\alpha$ = {alpha:g}")
    axes[1].set(xlabel=label("sharpness", "q_*"), ylabel="error on fresh patterns", xlim=(0, 1))
    axes[1].set_title(f"a binary teacher (points: $N$ = {table.attrs['size']})", fontsize=9)
    axes[1].set_ylim(top=0.42)
    axes[1].legend(fontsize=7.5, ncols=2, loc="upper left")
    runs = data["success"]
    for i, size in enumerate(runs["size"].values):
        here = runs.solved.sel(size=size)
        share, number = here.mean("seed"), here.sizes["seed"]
        centre = (share + 0.5 / number) / (1 + 1 / number)
        half = np.sqrt(share * (1 - share) / number + 0.25 / number**2) / (1 + 1 / number)
        bars = np.maximum([share - (centre - half), (centre + half) - share], 0)
        axes[2].errorbar(runs.samples + 0.004 * i, share, bars, fmt="o-", linewidth=0.8, color=COLOURS[i], markersize=4,
                         label=f"$N$ = {size}, {number} systems")  # fmt: skip
    axes[2].set(xlabel=label("patterns per weight", r"\alpha"), ylabel="fraction of systems solved", ylim=(-0.05, 1.05))
    axes[2].set_title("annealed descent on the means, then their signs", fontsize=9)
    axes[2].legend(fontsize=8)
    return figure


RECIPES = {
    "stochastic-synapses-sharpening": Recipe(
        sharpening,
        draw_sharpening,
        sentence="Means of binary weights that sharpen: loss and errors on the theory, generalisation of their signs, success.",
    )
}
