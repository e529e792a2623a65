"""Lengths and correlations layer by layer, and the depth scale against the variance of the means."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from solvable.model import simulate_batch
from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, label

from .model import BinaryInitialisation

CASES = {
    "deterministic, tanh": {"surrogate": "deterministic", "activation": "tanh"},
    "deterministic, erf": {"surrogate": "deterministic", "activation": "erf"},
    "sampled, tanh": {"surrogate": "sampled", "activation": "tanh"},
}
BIASES = (0.0, 0.001, 0.01, 0.1)


def signals(quick: bool) -> dict[str, Any]:
    import xarray as xr

    depth, size, seeds = (4, 40, 2) if quick else (12, 400, 48)
    table = xr.Dataset(coords={"case": list(CASES), "layer": np.arange(1, depth + 1)}, attrs={"size": size})
    found: dict[str, list[np.ndarray]] = {}
    for values in CASES.values():
        model = BinaryInitialisation(variance=0.9, bias_variance=0.05, depth=depth, **values)
        theory = model.theory()
        runs = simulate_batch(model, {}, jnp.stack([model.key(size, s) for s in range(seeds)]), size)
        for name in ("length", "correlation"):
            found.setdefault(name, []).append(np.asarray(theory[name]))
            found.setdefault(f"{name}_simulated", []).append(np.asarray(runs[name]))
    for name, v in found.items():
        table[name] = (("case", "seed", "layer") if "simulated" in name else ("case", "layer"), np.stack(v))
    s = np.concatenate([np.linspace(0.05, 0.9, 5 if quick else 18), 1 - np.geomspace(0.09, 1e-3, 4 if quick else 16)])
    scales = xr.Dataset(coords={"variance": s, "bias_variance": list(BIASES)})
    for name, values in CASES.items():
        model = BinaryInitialisation(variance=s[:, None], bias_variance=np.array(BIASES)[None, :], depth=1, **values)
        word = name.replace(", ", "_")
        scales[word] = (("variance", "bias_variance"), np.asarray(model.theory(only=["depth_scale"]).depth_scale))
    return {"layers": table, "scales": scales}


def draw_signals(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    table, scales = data["layers"], data["scales"]
    figure, axes = plt.subplots(1, 3, figsize=(13.5, 4.2), layout="constrained")
    for axis, name, words in ((axes[0], "length", ("mean square of the fields", "q_l")),
                              (axes[1], "correlation", ("correlation of two inputs", "c_l"))):  # fmt: skip
        for i, case in enumerate(table.case.values):
            here = table.sel(case=case)
            axis.plot(here.layer, here[name], color=COLOURS[i], label=str(case))
            runs = here[f"{name}_simulated"]
            error = runs.std("seed", ddof=1) / np.sqrt(runs.sizes["seed"])
            axis.errorbar(here.layer, runs.mean("seed"), error, fmt="o", color=COLOURS[i], markersize=3.5)
        axis.set(xlabel=label("layer", "l"), ylabel=label(*words))
        axis.set_title(
            rf"$\sigma_m^2 = 0.9$, $\sigma_b^2 = 0.05$ (points: $N$ = {table.attrs['size']}, {table.sizes['seed']} networks)",
            fontsize=9,
        )
    axes[1].legend(fontsize=8)
    axis = axes[2]
    for i, bias in enumerate(scales.bias_variance.values):
        here = scales.sel(bias_variance=bias)
        axis.plot(
            1 - here.variance, here["deterministic_tanh"], color=COLOURS[i], label=rf"tanh, $\sigma_b^2$ = {bias:g}"
        )
    first = scales.isel(bias_variance=0)
    axis.plot(1 - first.variance, first["deterministic_erf"], "--", color="0.3", label="erf, no biases")
    axis.plot(1 - first.variance, first["sampled_tanh"], ":", color="0.3", label="sampled tanh, no biases")
    axis.set(xscale="log", yscale="log", xlabel=label("distance of the initial means from ±1,", r"1 - \sigma_m^2"),
             ylabel=label("depth scale", r"\xi_c"))  # fmt: skip
    axis.invert_xaxis()
    axis.set_title("it diverges only for tanh without biases", fontsize=9)
    axis.legend(fontsize=7.5)
    return figure


RECIPES = {
    "binary-initialisation-signals": Recipe(
        signals,
        draw_signals,
        sentence="Signals in surrogates of binary networks, and the depth they reach: critical only for means near ±1.",
    )
}
