"""Local entropy and where dense regions break up, capacity by levels, and the success of reinforced message passing."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from solvable.methods.fixed_points.belief_propagation import pass_messages
from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, label

from .._points import by_size, share_solved
from .model import FewBitSynapses


def breaking_point(levels: Any, low: float, high: float, *, rounds: int = 6, distances: Any = None) -> float:
    """α_U: the smallest α at which φ falls with the distance somewhere, by rounds of nine values in a bracket.

    The slope is evaluated at `distances`, in units of the levels' variance.
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
    alphas: Any, size: int, seeds: int, levels: Any = (-1, 1), reinforcement: float | None = 0.003, together: int = 8
) -> dict[str, np.ndarray]:
    """Whether message passing (plain without `reinforcement`) found a solution, and after how many sweeps, by α and seed."""
    w = jnp.asarray(levels, jnp.float32)

    def one(key, rows):
        patterns = jnp.where(jax.random.bernoulli(key, 0.5, (rows, size)), 1.0, -1.0).astype(jnp.float32)
        found = pass_messages(patterns, w, reinforcement=reinforcement, most=1000, tolerance=1e-4)
        return found.solved, found.sweeps

    solved, sweeps = [], []
    for alpha in alphas:
        rows = round(alpha * size)
        run = jax.jit(lambda keys, rows=rows: jax.lax.map(lambda k: one(k, rows), keys, batch_size=together))
        a, b = run(jax.random.split(jax.random.key(round(1000 * alpha)), seeds))
        solved.append(np.asarray(a, float))
        sweeps.append(np.asarray(b, float))
    return {"solved": np.array(solved), "sweeps": np.array(sweeps)}


LARGE = (0.6, 0.65, 0.7, 0.75, 0.8)  # patterns per weight of the largest systems


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
    sizes, seeds = ([51, 101], 2) if quick else ([301, 1001], 12)
    each = [success(searched, n, seeds, reinforcement=0.02 if quick else 0.003) for n in sizes]
    runs = by_size(each, sizes, searched).assign_coords(seed=np.arange(seeds))
    plain = success(searched, sizes[0], seeds, reinforcement=None)
    runs["plain_solved"] = (("samples", "seed"), plain["solved"])
    if quick:
        return {"": table, "runs": runs}
    each = [success(LARGE, n, 32, together=32) for n in (2001, 4001)]  # minutes on an accelerator
    return {"": table, "runs": runs, "large": by_size(each, (2001, 4001), LARGE)}


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
    kinds = [(runs.solved.sel(size=n), n, "reinforced", "o", COLOURS[i]) for i, n in enumerate(runs["size"].values)]
    kinds.append((runs.plain_solved, runs["size"].values[0], "not reinforced", "s", COLOURS[0]))
    for i, n in enumerate(data["large"]["size"].values if "large" in data else ()):
        kinds.append((data["large"].solved.sel(size=n), n, "reinforced", "o", COLOURS[i + 2]))
    for i, (solved, size, words, marker, colour) in enumerate(kinds):
        share, bars = share_solved(solved)
        axis.errorbar(solved.samples + 0.004 * (i - 1), share, bars, fmt=marker, color=colour, markersize=5,
                      markerfacecolor=colour if marker == "o" else "white", label=f"{words}, $N$ = {size}")  # fmt: skip
    axis.axvline(threshold, color="0.4", linestyle="--", linewidth=1, label=rf"$\alpha_U$ = {threshold:.3f}")
    top = float(table.capacity_symmetric.sel(number=2))
    axis.axvline(top, color="0.4", linestyle=":", linewidth=1, label=rf"$\alpha_c$ = {top:.3f}")
    axis.set(xlabel=label("patterns per weight", r"\alpha"), ylabel="fraction of systems solved", ylim=(-0.05, 1.05))
    axis.set_title(
        f"message passing, weights $\\pm 1$, $\\gamma = 0.003$,\n{runs.sizes['seed']} systems per point (32 for $N$ > 2000)",
        fontsize=9,
    )
    axis.legend(fontsize=8, loc="center left", bbox_to_anchor=(0.0, 0.4))
    return figure


SETS = {"0, 1": (0, 1), "-1, 1": (-1, 1), "0, 1, 2": (0, 1, 2), "-1, 0, 1": (-1, 0, 1), "0, 1, 2, 3": (0, 1, 2, 3)}
PARTS = (0.6, 0.8, 0.9, 0.95)


def levels_and_regions(quick: bool) -> dict[str, Any]:
    """φ by distance for several sets of levels, at fractions of each capacity, and α_U."""
    import xarray as xr

    sets = dict(list(SETS.items())[:2]) if quick else SETS
    d = np.linspace(0.03, 0.4, 5 if quick else 38)
    table = xr.Dataset(coords={"levels": list(sets), "part": list(PARTS), "distance": d})
    curves, slopes, tops, breaks = [], [], [], []
    for levels in sets.values():
        w = np.asarray(levels, float)
        top = float(FewBitSynapses(levels=w, replicas="none").theory(only=["capacity"]).capacity)
        model = FewBitSynapses(levels=w, samples=top * np.array(PARTS)[:, None], distance=d[None, :])
        found = model.theory(only=["local_entropy", "local_slope"])
        curves.append(np.asarray(found.local_entropy))
        slopes.append(np.asarray(found.local_slope))
        tops.append(top)
        breaks.append(breaking_point(w, 0.8 * top, top, rounds=1 if quick else 4))
    table["local_entropy"] = (("levels", "part", "distance"), np.stack(curves))
    table["local_slope"] = (("levels", "part", "distance"), np.stack(slopes))
    table["capacity"], table["breaking"] = ("levels", tops), ("levels", breaks)
    return {"": table}


def draw_levels_and_regions(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    table = data[""]
    figure, axes = plt.subplots(1, 2, figsize=(9.6, 4.2), layout="constrained")
    part = 0.8
    for i, name in enumerate(table.levels.values):
        here = table.sel(levels=name)
        axes[0].plot(here.distance, here.local_entropy.sel(part=part), color=COLOURS[i], label=f"levels {name}")
    axes[0].set(xlabel=label("mutual distance in units of the levels' variance,", "d"), xlim=(0, 0.4), ylim=(0, None),
                ylabel=label("local entropy per weight", r"\phi"))  # fmt: skip
    axes[0].set_title(f"theory at {part:g} of each capacity: regions dense down to small $d$", fontsize=9)
    axes[0].legend(fontsize=8)
    number = np.arange(table.sizes["levels"])
    axes[1].bar(number - 0.2, table.capacity, 0.4, color="0.8", label=label("capacity", r"\alpha_c"))
    axes[1].bar(number + 0.2, table.breaking, 0.4, color=COLOURS[0], label=label("dense regions up to", r"\alpha_U"))
    for i, share in enumerate((table.breaking / table.capacity).values):
        axes[1].text(i + 0.2, float(table.breaking[i]) + 0.02, f"{share:.1%}", ha="center", fontsize=8)
    axes[1].grid(visible=False)
    axes[1].set_xticks(number, [f"{{{name}}}" for name in table.levels.values], fontsize=8.5)
    axes[1].set(xlabel="levels", ylabel=label("patterns per weight", r"\alpha"), ylim=(0, 1.4))
    axes[1].set_title("where dense regions break up, and its share of the capacity", fontsize=9)
    axes[1].legend(fontsize=8, loc="upper left")
    return figure


RECIPES = {
    "few-bit-dense-regions": Recipe(
        dense_regions,
        draw_dense_regions,
        sentence="Beyond α_U dense regions of solutions break up; more levels gain little, and message passing finds solutions.",
    ),
    "few-bit-levels": Recipe(
        levels_and_regions,
        draw_levels_and_regions,
        sentence="For every set of levels tried, solutions form dense regions up to about nine tenths of the capacity.",
    ),
}
