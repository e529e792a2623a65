"""Overlap by layer, attention and its gradients against the strength, and where a deep transformer keeps its signal."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from solvable.model import simulate_batch
from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, MARKERS, label, log_axis

from .model import TransformerSignals

PLAIN: dict[str, Any] = {"value_variance": 0.2, "weight_variance": 0.2, "bias_variance": 4e-4, "initial_overlap": 0.2}
WEAK: dict[str, Any] = {"value_variance": 1.0, "attention_residual": 0.3, "strength": 3.0}
CHAOTIC: dict[str, Any] = {"activation": "erf", "weight_variance": 9.0, "value_variance": 1.0, "bias_variance": 0.05}
STRENGTHS = (0.5, 3.0)
RESIDUALS = (0.5, 0.8, 1.5, 2.5)


def _runs(model: TransformerSignals, size: int, seeds: int) -> Any:
    """Realisations, four at a time to bound the memory."""
    parts = [
        simulate_batch(model, {}, jnp.stack([model.key(size, s) for s in range(b, min(b + 4, seeds))]), size)
        for b in range(0, seeds, 4)
    ]
    return {name: np.concatenate([np.asarray(p[name]) for p in parts]) for name in parts[0]}


def depth(quick: bool) -> dict[str, Any]:
    import xarray as xr

    context, size, blocks, seeds = (16, 48, 3, 4) if quick else (128, 384, 16, 8)
    table = xr.Dataset(
        coords={"layer_norm": ["after", "before"], "strength": list(STRENGTHS), "layer": np.arange(blocks + 1)},
        attrs={"context": context, "size": size},
    )
    found: dict[str, np.ndarray] = {}

    def put(name: str, i: int, j: int, values: Any) -> None:
        values = np.asarray(values)
        found.setdefault(name, np.full((2, len(STRENGTHS), *values.shape), np.nan))[i, j] = values

    for i, where in enumerate(("after", "before")):
        for j, strength in enumerate(STRENGTHS):
            model = TransformerSignals(context=context, depth=blocks, layer_norm=where, strength=strength, **PLAIN)
            kinds = {"": {}, "_limit": {"tokens": "infinite"}, "_uniform": {"attention": "uniform"}}
            for kind, values in kinds.items():
                outcome = model.replace(**values).theory()
                put(f"overlap{kind}", i, j, outcome.overlap)
                if where == "before":
                    put(f"norm{kind}", i, j, outcome.norm)
            runs = _runs(model, size, seeds)
            put("overlap_simulated", i, j, runs["overlap"])
            if where == "before":
                put("norm_simulated", i, j, runs["norm"])
    for name, values in found.items():
        table[name] = (
            ("layer_norm", "strength", *(("seed",) if "simulated" in name else ()), "layer"), values,
        )  # fmt: skip
    # Weak residuals beside frozen attention: the means no longer suffice.
    weak = TransformerSignals(context=context, depth=min(blocks, 6), **{**PLAIN, **WEAK})
    outcome, runs = weak.theory(), _runs(weak, size, seeds)
    hard = xr.Dataset(coords={"layer": np.arange(weak.depth + 1), "block": np.arange(1, weak.depth + 1)}, attrs=WEAK)
    for name, dim in (("overlap", "layer"), ("participation", "block")):
        hard[name], hard[f"{name}_simulated"] = (dim, np.asarray(outcome[name])), (("seed", dim), runs[name])
    return {"": table, "weak": hard}


def draw_depth(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    table, hard = data[""], data["weak"]
    figure, axes = plt.subplots(1, 4, figsize=(15.5, 3.9), layout="constrained")
    shown = (("after", "overlap", ("overlap of tokens", r"\rho")), ("before", "overlap", ("overlap of tokens", r"\rho")),
             ("before", "norm", ("mean square of a token", "q")))  # fmt: skip
    for axis, (where, name, words) in zip(axes, shown, strict=False):
        for j, strength in enumerate(table.strength.values):
            here = table.sel(layer_norm=where, strength=strength)
            axis.plot(here.layer, here[name], color=COLOURS[j], label=rf"$\beta$ = {strength:g}")
            axis.plot(here.layer, here[f"{name}_limit"], ":", color=COLOURS[j])
            runs = here[f"{name}_simulated"]
            error = runs.std("seed", ddof=1) / np.sqrt(runs.sizes["seed"])
            axis.errorbar(here.layer, runs.mean("seed"), error, fmt=MARKERS[j], color=COLOURS[j], markersize=3.8)
        axis.plot(here.layer, here[f"{name}_uniform"], "--", color="0.5", label="uniform attention")
        axis.set(xlabel="blocks passed", ylabel=label(*words))
        axis.set_title(f"normalisation {where} the {'sum' if where == 'after' else 'branch'}", fontsize=9)
    axes[0].legend(fontsize=8)
    axis = axes[3]
    for j, (name, words) in enumerate((("overlap", "overlap of tokens"), ("participation", "participation $Y_2$"))):
        runs, dim = hard[f"{name}_simulated"], hard[name].dims[0]
        error = runs.std("seed", ddof=1) / np.sqrt(runs.sizes["seed"])
        axis.plot(hard[dim], hard[name], color=COLOURS[j + 2], label=words)
        axis.errorbar(hard[dim], runs.mean("seed"), error, fmt=MARKERS[j], color=COLOURS[j + 2], markersize=3.8)
    axis.set(xlabel="blocks passed", ylabel="overlap, participation", ylim=(0, 1))
    axis.set_title(r"weak residual, $\alpha_A$ = 0.3, and strong attention, $\beta$ = 3", fontsize=9)
    axis.legend(fontsize=8)
    figure.suptitle(
        f"Tokens become parallel with depth, later for strong queries and keys (T = {table.attrs['context']}: lines; "
        f"T → ∞: dotted; points: d = {table.attrs['size']}, {table.sizes['seed']} networks)", fontsize=10,
    )  # fmt: skip
    return figure


def attention(quick: bool) -> dict[str, Any]:
    import xarray as xr

    context, size, seeds = (32, 48, 4) if quick else (256, 512, 8)
    lines, points = np.linspace(0.02, 4.0, 30 if quick else 200), np.linspace(0.25, 4.0, 3 if quick else 12)
    names = ("participation", "shared_attention", "attention_entropy", "query_gradient", "value_gradient")
    table = xr.Dataset(coords={"strength": lines, "at": points}, attrs={"context": context, "size": size, **PLAIN})
    model = TransformerSignals(context=context, depth=1, **PLAIN)
    for kind, values in {"": {}, "_limit": {"tokens": "infinite"}}.items():
        outcome = model.replace(strength=lines, **values).theory()
        for name in names:
            table[f"{name}{kind}"] = ("strength", np.asarray(outcome[name])[:, 0])
    runs = [_runs(model.replace(strength=beta), size, seeds) for beta in points]
    for name in names:
        table[f"{name}_simulated"] = (("at", "seed"), np.stack([run[name][:, 0] for run in runs]))
    for T in () if quick else (16, 4096):
        table[f"participation_{T}"] = (
            "strength",
            np.asarray(model.replace(context=T, strength=lines).theory().participation)[:, 0],
        )
    return {"": table}


def draw_attention(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    table = data[""]
    critical = float(np.sqrt(2 / (1 - table.attrs["initial_overlap"])))
    figure, axes = plt.subplots(1, 3, figsize=(13, 3.9), layout="constrained")
    shown = (("participation", ("participation", "Y_2")), ("attention_entropy", ("entropy of attention", r"H/\log T")),
             ("query_gradient", ("squared query gradient, scaled", r"|\partial W_Q|^2")))  # fmt: skip
    for axis, (name, words) in zip(axes, shown, strict=True):
        axis.plot(table.strength, table[name], color=COLOURS[0], label=f"T = {table.attrs['context']}")
        axis.plot(table.strength, table[f"{name}_limit"], "--", color="0.4", label="T → ∞")
        runs = table[f"{name}_simulated"]
        error = runs.std("seed", ddof=1) / np.sqrt(runs.sizes["seed"])
        axis.errorbar(table["at"], runs.mean("seed"), error, fmt="o", color=COLOURS[0], markersize=4)
        axis.axvline(critical, color="0.6", linestyle=":", linewidth=1)
        axis.set(xlabel=label("strength of queries and keys", r"\beta"), ylabel=label(*words))
    for i, T in enumerate((16, 4096)):
        if f"participation_{T}" in table:
            axes[0].plot(
                table.strength, table[f"participation_{T}"], color=COLOURS[i + 2], linewidth=1, label=f"T = {T}"
            )
    axes[0].text(critical + 0.06, 0.66, r"$\beta_c$", fontsize=9)
    axes[0].legend(fontsize=8)
    figure.suptitle(
        f"Attention freezes and query gradients switch on around $\\beta_c$ (points: d = {table.attrs['size']}, "
        f"{table.sizes['seed']} networks, $\\rho$ = {table.attrs['initial_overlap']:g})", fontsize=10,
    )  # fmt: skip
    return figure


def trainability(quick: bool) -> dict[str, Any]:
    import xarray as xr

    number, blocks = (12, 10) if quick else (100, 50)
    strength, residual = np.linspace(0.05, 4.0, number), np.linspace(0.1, 3.0, number)
    grid = {"strength": strength[:, None], "attention_residual": residual[None, :]}
    table = xr.Dataset(coords={"strength": strength, "residual": residual}, attrs={"depth": blocks, "context": 512})
    for name, values in {"relu": PLAIN, "erf": CHAOTIC}.items():
        outcome = TransformerSignals(depth=blocks, context=512, **{**values, **grid}).theory(
            only=["final_overlap", "collapse_slope", "attention_entropy"]
        )
        table[f"overlap_{name}"] = (("strength", "residual"), np.asarray(outcome.final_overlap))
        table[f"slope_{name}"] = ("residual", np.asarray(outcome.collapse_slope)[0])
        table[f"entropy_{name}"] = (("strength", "residual"), np.asarray(outcome.attention_entropy)[..., 0])
    context, size, deep, seeds = (16, 48, 4, 4) if quick else (64, 256, 30, 8)
    runs = [
        TransformerSignals(context=context, depth=deep, strength=1.0, attention_residual=a, **CHAOTIC)
        for a in RESIDUALS
    ]
    towers = xr.Dataset(
        {
            "overlap": (("residual", "layer"), np.stack([np.asarray(m.theory().overlap) for m in runs])),
            "slope": ("residual", [float(m.theory(only=["collapse_slope"]).collapse_slope) for m in runs]),
            "overlap_simulated": (
                ("residual", "seed", "layer"),
                np.stack([_runs(m, size, seeds)["overlap"] for m in runs]),
            ),
        },
        coords={"residual": list(RESIDUALS), "layer": np.arange(deep + 1)},
        attrs={"context": context, "size": size},
    )
    far = 10 if quick else 100
    kinds = {
        f"{where}, {kind}": TransformerSignals(
            depth=far, strength=0.1, layer_norm=where, attention=kind, tokens="infinite", **PLAIN
        )
        for where in ("after", "before")
        for kind in ("softmax", "centred")
    }
    variants = xr.Dataset(
        {"overlap": (("kind", "layer"), np.stack([np.asarray(m.theory().overlap) for m in kinds.values()]))},
        coords={"kind": list(kinds), "layer": np.arange(far + 1)},
    )
    return {"": table, "towers": towers, "variants": variants}


def draw_trainability(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    table, towers, variants = data[""], data["towers"], data["variants"]
    figure, axes = plt.subplots(1, 4, figsize=(16.5, 4), layout="constrained")
    for axis, name, words in ((axes[0], "relu", "ReLU"), (axes[1], "erf", r"erf, $\sigma_w^2$ = 9")):
        shown = axis.pcolormesh(
            table.strength, table.residual, table[f"overlap_{name}"].T, vmin=0, vmax=1, cmap="viridis", rasterized=True
        )
        axis.contour(
            table.strength, table.residual, table[f"entropy_{name}"].T, levels=[0.5], colors="w", linestyles="--"
        )
        slope = table[f"slope_{name}"].values
        if (slope > 1).any() and (slope < 1).any():
            critical = float(np.interp(1.0, slope, table.residual))
            axis.axhline(critical, color="w", linewidth=1.2)
            axis.text(3.95, critical + 0.04, "critical residual", color="w", fontsize=8, ha="right")
        axis.set(xlabel=label("strength of queries and keys", r"\beta"), ylabel=label("residual strength", r"\alpha_A"))
        axis.set_title(f"{words}: overlap after {table.attrs['depth']} blocks (dashed: half the entropy)", fontsize=8.5)
        axis.grid(False)
    figure.colorbar(shown, ax=axes[1], label=label("overlap of tokens at the end", r"\rho_L"))
    for i, residual in enumerate(towers.residual.values):
        here = towers.sel(residual=residual)
        runs = here.overlap_simulated
        error = runs.std("seed", ddof=1) / np.sqrt(runs.sizes["seed"])
        text = rf"$\alpha_A$ = {residual:g} (slope {float(here.slope):.2f})"
        axes[2].plot(here.layer, here.overlap, color=COLOURS[i], label=text)
        axes[2].errorbar(here.layer[::4], runs.mean("seed")[::4], error[::4], fmt="o", color=COLOURS[i], markersize=3.5)
    axes[2].set(xlabel="blocks passed", ylabel=label("overlap of tokens", r"\rho"), ylim=(0, 1.02))
    axes[2].set_title(f"erf, β = 1 (points: d = {towers.attrs['size']}, T = {towers.attrs['context']})", fontsize=9)
    axes[2].legend(title="residual strength (slope at collapse)", fontsize=7, title_fontsize=7, loc="center right",
                   bbox_to_anchor=(1.0, 0.38))  # fmt: skip
    for i, kind in enumerate(variants.kind.values):
        apart = 1 - variants.overlap.sel(kind=kind)
        axes[3].plot(variants.layer[1:], apart[1:], color=COLOURS[i], label=str(kind))
    log_axis(axes[3].yaxis)
    axes[3].set(xlabel="blocks passed", ylabel=label("distance from collapse", r"1 - \rho"))
    axes[3].set_title("which parts cause the collapse (T → ∞, β = 0.1)", fontsize=9)
    axes[3].legend(title="normalisation, attention", fontsize=8, title_fontsize=8)
    return figure


RECIPES = {
    "transformer-signals-depth": Recipe(
        depth,
        draw_depth,
        sentence="Overlap and norm of tokens by layer of a random transformer: theory at finite T, its limit, networks.",
    ),
    "transformer-signals-attention": Recipe(
        attention,
        draw_attention,
        sentence="Concentration, entropy and query gradients of random attention against the strength of queries and keys.",
    ),
    "transformer-trainability": Recipe(
        trainability,
        draw_trainability,
        sentence="Overlap of tokens deep in a random transformer over query/key strength and residual strength; white: "
        "critical residual, dashed: half the attention entropy at the input.",
    ),
}
