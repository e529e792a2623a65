"""Local entropy and where dense regions break up, capacity by levels, and the success of reinforced message passing."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from solvable.methods.fixed_points.belief_propagation import pass_messages
from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, label

from .model import FewBitSynapses

LEVELS = {"-1, 1": (-1, 1), "0, 1": (0, 1), "-1, 0, 1": (-1, 0, 1)}


def breaking_point(levels: Any, low: float, high: float, *, rounds: int = 6, distances: Any = None) -> float:
    """α_U: the least α at which φ falls with the distance somewhere, by rounds of nine values between two.

    `distances`, in units of the levels' variance, are where the slope is looked at.
    """
    d = np.linspace(0.03, 0.3, 28) if distances is None else np.asarray(distances)
    model = FewBitSynapses(levels=np.asarray(levels, float), distance=d[:, None])
    for _ in range(rounds):
        grid = np.linspace(low, high, 5)
        slope = np.asarray(model.replace(samples=grid[None, :]).theory(only=["local_slope"]).local_slope)
        broken = np.nanmin(slope, axis=0) < 0
        first = int(np.argmax(broken)) if broken.any() else len(grid) - 1
        low, high = grid[max(first - 1, 0)], grid[first]
    return 0.5 * (low + high)


def success(
    alphas: Any, size: int, seeds: int, levels: Any = (-1, 1), reinforcement: float = 0.003, together: int = 8
) -> dict[str, np.ndarray]:
    """Whether reinforced message passing solved, and after how many sweeps, by α and seed."""
    w = jnp.asarray(levels, jnp.float32)

    def one(key, rows):
        patterns = jnp.where(jax.random.bernoulli(key, 0.5, (rows, size)), 1.0, -1.0).astype(jnp.float32)
        found = pass_messages(patterns, w, reinforcement=reinforcement, most=1000)
        return found.solved, found.sweeps

    solved, sweeps = [], []
    for alpha in alphas:
        rows = round(alpha * size)
        run = jax.jit(lambda keys, rows=rows: jax.lax.map(lambda k: one(k, rows), keys, batch_size=together))
        a, b = run(jax.random.split(jax.random.key(round(1000 * alpha)), seeds))
        solved.append(np.asarray(a, float))
        sweeps.append(np.asarray(b, float))
    return {"solved": np.array(solved), "sweeps": np.array(sweeps)}


def dense_regions(quick: bool) -> dict[str, Any]:
    import xarray as xr

    alphas = [0.6, 0.77] if quick else [0.4, 0.5, 0.6, 0.7, 0.75, 0.77, 0.8]
    d = np.linspace(0.02, 0.5, 7 if quick else 40)
    curve = FewBitSynapses(samples=np.array(alphas)[:, None], distance=d[None, :]).theory(only=["local_entropy"])
    table = xr.Dataset(coords={"samples": alphas, "distance": d})
    table["local_entropy"] = (("samples", "distance"), np.asarray(curve.local_entropy))
    typical = FewBitSynapses(samples=alphas, replicas="none").theory()
    table["entropy"] = ("samples", np.asarray(typical.entropy))
    table["typical_distance"] = ("samples", np.asarray(typical.square - typical.overlap))
    numbers = [2, 3] if quick else [2, 3, 4, 5, 6, 8]

    def capacities(kind: str) -> list[float]:
        make = np.arange if kind == "positive" else lambda n: np.arange(n) - (n - 1) / 2
        return [
            float(FewBitSynapses(levels=make(n), replicas="none").theory(only=["capacity"]).capacity) for n in numbers
        ]

    table = table.assign_coords(number=numbers)
    table["capacity_positive"] = ("number", capacities("positive"))
    table["capacity_symmetric"] = ("number", capacities("symmetric"))
    table["breaking"] = breaking_point((-1, 1), 0.7, 0.8, rounds=1 if quick else 5)
    searched = [0.4, 0.5] if quick else [0.5, 0.6, 0.65, 0.7, 0.75, 0.8]
    size, seeds = (101, 2) if quick else (1001, 12)
    found = success(searched, size, seeds, reinforcement=0.02 if quick else 0.003)
    runs = xr.Dataset(
        {name: (("samples", "seed"), values) for name, values in found.items()},
        coords={"samples": searched, "seed": np.arange(seeds)},
        attrs={"size": size},
    )
    return {"": table, "runs": runs}


def draw_dense_regions(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    table, runs = data[""], data["runs"]
    figure, axes = plt.subplots(1, 3, figsize=(13.5, 4.2), layout="constrained")
    axis, threshold = axes[0], float(table.breaking)
    shades = plt.get_cmap("viridis")(np.linspace(0.0, 0.85, table.sizes["samples"]))
    for shade, alpha in zip(shades, table.samples.values, strict=True):
        here = table.sel(samples=alpha)
        axis.plot(here.distance, here.local_entropy, color=shade, label=f"$\\alpha$ = {alpha:g}")
        if float(here.typical_distance) <= float(table.distance[-1]):
            axis.plot(here.typical_distance, here.entropy, "o", color=shade, markersize=4)
    x = np.linspace(1e-4, 0.5, 200)
    p = (1 + np.sqrt(1 - x)) / 2
    axis.plot(x, -p * np.log(p) - (1 - p) * np.log(1 - p), ":", color="0.5", label="all weights")
    axis.set(xlabel=label("mutual distance", "d = 1 - q_1"), ylabel=label("local entropy per weight", r"\phi"), xlim=(0, 0.5),
             ylim=(0, 0.36))  # fmt: skip
    axis.set_title(f"weights $\\pm 1$: dense regions break up at $\\alpha_U$ = {threshold:.4f}\n(points: typical solutions)",
                   fontsize=9)  # fmt: skip
    axis.legend(fontsize=7.5, ncols=2, loc="upper left")

    axis = axes[1]
    for i, (name, words, limit) in enumerate(
        (("positive", "0, 1, …, L − 1", 1), ("symmetric", "symmetric, evenly spaced", 2))
    ):
        axis.plot(table.number, table[f"capacity_{name}"], "o-", color=COLOURS[i], markersize=4, label=words)
        axis.axhline(limit, color=COLOURS[i], linestyle=":", linewidth=1)
    axis.set(xlabel=label("number of levels", "L"), ylabel=label("capacity", r"\alpha_c"), ylim=(0, 2.1))
    axis.set_title("capacity, and its limit for many levels (dotted)", fontsize=9)
    axis.legend(fontsize=8)

    axis = axes[2]
    share, number = runs.solved.mean("seed"), runs.sizes["seed"]
    # Wilson's interval, which has a width also where all or none are solved
    centre = (share + 0.5 / number) / (1 + 1 / number)
    half = np.sqrt(share * (1 - share) / number + 0.25 / number**2) / (1 + 1 / number)
    bars = np.maximum([share - (centre - half), (centre + half) - share], 0)
    axis.errorbar(
        runs.samples, share, bars, fmt="o", color=COLOURS[0], label=f"$N$ = {runs.attrs['size']}, {number} systems"
    )
    axis.axvline(threshold, color="0.4", linestyle="--", linewidth=1, label=rf"$\alpha_U$ = {threshold:.3f}")
    top = float(table.capacity_symmetric.sel(number=2))
    axis.axvline(top, color="0.4", linestyle=":", linewidth=1, label=rf"$\alpha_c$ = {top:.3f}")
    axis.set(xlabel=label("patterns per weight", r"\alpha"), ylabel="fraction of systems solved", ylim=(-0.05, 1.05))
    axis.set_title(r"reinforced message passing, weights $\pm 1$, $\gamma = 0.003$", fontsize=9)
    axis.legend(fontsize=8, loc="lower left")
    return figure


RECIPES = {
    "few-bit-dense-regions": Recipe(
        dense_regions,
        draw_dense_regions,
        sentence="Dense regions of solutions break up at α_U, more levels soon gain little, and message passing finds solutions.",
    )
}
