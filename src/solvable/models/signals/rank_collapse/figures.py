"""Overlap by layer with and without scaled branches, and gradients of queries and values on the way to collapse."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from solvable.model import simulate_batch
from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, MARKERS, label

from .model import RankCollapse

CASES = {
    "linear": {},
    "ReLU": {"mlp": "relu"},
    "linear, branches / √L": {"scaling": "depth"},
    "ReLU, branches / √L": {"mlp": "relu", "scaling": "depth"},
}
LENGTHS = (0.5, 0.7, 1.0, 1.4, 2.0)
NAMES = ("overlap", "log_length", "log_query_gradient", "log_value_gradient")


def _runs(model: RankCollapse, size: int, seeds: int) -> Any:
    found = simulate_batch(model, {}, jnp.stack([model.key(size, s) for s in range(seeds)]), size)
    return {name: np.asarray(found[name]) for name in NAMES}


def collapse(quick: bool) -> dict[str, Any]:
    import xarray as xr

    context, size, blocks, seeds = (6, 32, 3, 4) if quick else (20, 384, 16, 12)
    table = xr.Dataset(
        coords={"case": list(CASES), "layer": np.arange(blocks + 1), "block": np.arange(1, blocks + 1)},
        attrs={"context": context, "size": size},
    )
    found: dict[str, list[np.ndarray]] = {}
    for values in CASES.values():
        model = RankCollapse(context=context, depth=blocks, **values)
        theory, runs = model.theory(), _runs(model, size, seeds)
        for name in NAMES:
            found.setdefault(name, []).append(np.asarray(theory[name]))
            found.setdefault(f"{name}_simulated", []).append(runs[name])
    for name, values in found.items():
        dim = "block" if "gradient" in name else "layer"
        table[name] = (("case", "seed", dim) if "simulated" in name else ("case", dim), np.stack(values))
    # Input norms: branches are homogeneous, so that a longer token is a larger variance of everything it meets.
    depths = np.array([1, 2, 4] if quick else [1, 2, 4, 8, 16, 32, 64, 128, 256])
    ends = xr.Dataset(
        {
            name: ("depth", [float(RankCollapse(context=context, depth=int(d), **v).theory().final_overlap) for d in depths])
            for name, v in (("none", {}), ("scaled", {"scaling": "depth"}))
        },
        coords={"depth": depths},
        attrs={"limit": float(RankCollapse(context=context, scaling="depth").theory().limit_overlap)},
    )  # fmt: skip
    return {"": table, "ends": ends, "lengths": _lengths(context, size, seeds), "sizes": _sizes(quick)}


def _sizes(quick: bool) -> Any:
    """Gradients of one layer, over the number of tokens and the width, at tokens of overlap one half."""
    import xarray as xr

    contexts, widths, seeds = ([5, 10], [24, 48], 4) if quick else ([5, 10, 20, 40, 80], [96, 192, 384], 96)
    names = ("log_query_gradient", "log_value_gradient")
    table = {name: np.empty((len(contexts), len(widths), seeds)) for name in names}
    theory = {name: np.empty(len(contexts)) for name in names}
    for i, context in enumerate(contexts):
        model = RankCollapse(context=context, depth=1, initial_overlap=0.5)
        expected = model.theory(only=list(names))
        for name in names:
            theory[name][i] = expected[name][0]
        for j, width in enumerate(widths):
            runs = _runs(model, width, seeds)
            for name in names:
                table[name][i, j] = runs[name][:, 0]
    columns: dict[str, Any] = {f"{name}_simulated": (("context", "size", "seed"), v) for name, v in table.items()}
    return xr.Dataset(columns | {n: ("context", v) for n, v in theory.items()}, {"context": contexts, "size": widths})


def _lengths(context: int, size: int, seeds: int) -> Any:
    """Squared Jacobians of one layer of uniform attention at tokens of several lengths, by automatic differentiation."""
    import jax
    import xarray as xr

    def one(key, length):
        k = jax.random.split(key, 4)
        x = length * jax.random.normal(k[0], (context, size), jnp.float32)
        keys, values = (
            jax.random.normal(i, (size, size), jnp.float32) / jnp.sqrt(size).astype(jnp.float32) for i in k[1:3]
        )

        def attend(queries, values):
            scores = (x @ queries) @ (x @ keys).T / jnp.sqrt(size).astype(jnp.float32)
            return jax.nn.softmax(scores, axis=1) @ x @ values

        _, pull = jax.vjp(attend, 0 * keys, values)
        return [jnp.sum(g**2) / size / size for g in pull(jax.random.normal(k[3], (context, size), jnp.float32))]

    keys = jax.random.split(jax.random.key(1), seeds)
    found = np.array([jax.jit(jax.vmap(one, (0, None)))(keys, length) for length in LENGTHS])
    return xr.Dataset(
        {"query": (("length", "seed"), found[:, 0]), "value": (("length", "seed"), found[:, 1])},
        coords={"length": list(LENGTHS)},
        attrs={"context": context, "size": size},
    )


def draw_collapse(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    table, ends, lengths = data[""], data["ends"], data["lengths"]
    figure, grid = plt.subplots(2, 3, figsize=(13.0, 7.6), layout="constrained")
    axes = grid.flat

    def points(axis: Any, x: Any, runs: Any, i: int) -> None:
        error = runs.std("seed", ddof=1) / np.sqrt(runs.sizes["seed"])
        axis.errorbar(x, runs.mean("seed"), error, fmt=MARKERS[i], color=COLOURS[i], markersize=3.6)

    for i, case in enumerate(table.case.values):
        here = table.sel(case=case)
        axes[0].plot(here.layer, here.overlap, color=COLOURS[i], label=str(case))
        points(axes[0], here.layer, here.overlap_simulated, i)
        ratio = (here.log_query_gradient_simulated - here.log_value_gradient_simulated) / np.log(10)
        scaled = 2 * here.log_length.isel(layer=slice(None, -1)).values / np.log(10)
        line = (here.log_query_gradient - here.log_value_gradient) / np.log(10) - scaled
        axes[1].plot(here.overlap.isel(layer=slice(None, -1)), line, color=COLOURS[i])
        points(axes[1], here.overlap.isel(layer=slice(None, -1)), ratio - scaled, i)
    axes[0].set(xlabel="blocks passed", ylabel=label("overlap of tokens", r"\rho"), ylim=(-0.03, 1.02))
    axes[0].legend(fontsize=8)
    axes[0].set_title("tokens become parallel, unless branches shrink", fontsize=10)
    axes[1].set_title("queries then have no gradient", fontsize=10)
    axes[1].set(
        xlabel=label("overlap of tokens", r"\rho"),
        ylabel="squared gradient, queries over values,\nover the mean square of a token, log₁₀",
    )
    axes[2].plot(ends.depth, ends.none, "-o", color=COLOURS[0], markersize=4, label="as they are")
    axes[2].plot(ends.depth, ends.scaled, "-s", color=COLOURS[2], markersize=4, label=r"branches / $\sqrt{L}$")
    axes[2].axhline(ends.attrs["limit"], color="0.5", linestyle=":", linewidth=1)
    axes[2].text(12, ends.attrs["limit"] + 0.03, r"$(e-1)/(e+T-1)$", fontsize=8)
    axes[2].set(
        xscale="log", xlabel=label("blocks", "L"), ylabel=label("overlap at the end", r"\rho_L"), ylim=(-0.03, 1.02)
    )
    axes[2].legend(fontsize=8)
    axes[2].set_title("the limit of depth", fontsize=10)
    for i, (name, words, power) in enumerate((("query", "queries", 6), ("value", "values", 2))):
        runs = lengths[name]
        T = lengths.attrs["context"]
        level = (T - 1) / T if name == "query" else 1.0
        axes[3].plot(lengths.length, level * lengths.length**power, color=COLOURS[i], label=f"{words}: power {power}")
        points(axes[3], lengths.length, runs, i)
    axes[3].set(
        xscale="log", yscale="log", xlabel="length of the tokens, $|x|/\\sqrt{d}$", ylabel="squared gradient / $d^2$"
    )
    axes[3].set_xticks(list(LENGTHS), [f"{x:g}" for x in LENGTHS])
    axes[3].minorticks_off()
    axes[3].legend(fontsize=8)
    axes[3].set_title("gradients against the length of tokens", fontsize=10)
    sizes = data["sizes"]
    for i, (name, words) in enumerate((("log_query_gradient", "queries"), ("log_value_gradient", "values"))):
        axes[4].plot(sizes.context, np.exp(sizes[name]), color=COLOURS[i], label=words)
        for k, size in enumerate(sizes["size"].values):
            points(axes[4], sizes.context, np.exp(sizes[f"{name}_simulated"].sel(size=size)), i + 2 * k)
    axes[4].set(xscale="log", yscale="log", xlabel=label("tokens", "T"), ylabel="squared gradient / $d^2$")
    axes[4].set_xticks(sizes.context.values, [str(n) for n in sizes.context.values])
    axes[4].minorticks_off()
    axes[4].set_title(
        f"overlap 1/2, {sizes.sizes['seed']} networks; markers: d = " + ", ".join(str(n) for n in sizes["size"].values),
        fontsize=10,
    )
    axes[4].legend(fontsize=8)
    axes[5].set_axis_off()
    figure.suptitle(
        f"Uniform attention makes tokens parallel and starves queries (lines: theory; points: d = {table.attrs['size']}, "
        f"T = {table.attrs['context']}, {table.sizes['seed']} networks)", fontsize=10,
    )  # fmt: skip
    return figure


RECIPES = {
    "rank-collapse": Recipe(
        collapse,
        draw_collapse,
        sentence="Overlap of tokens by layer with and without scaled branches, and gradients of queries and values.",
    )
}
