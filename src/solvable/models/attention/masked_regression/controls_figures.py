"""What the peak feeds on, whether Gaussians describe sequences, and where masked learning finds what PCA misses."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from solvable.methods.sequences.monte_carlo import gibbs, random_states
from solvable.methods.sequences.potts import Factored
from solvable.models.replica.perceptron.model import Perceptron
from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, INK, label, log_axis
from solvable.study import Study, provenance

from .covariances import SWEEPS, glass
from .model import EDGES, MaskedRegression
from .regressions import block_loss, regress_all

SMALL = 0.01
"""Penalty on sequences."""
FRESH = 8000
"""Sequences that measure the covariance."""
LAWS = {
    "spins, β = 0.5": (2, 0.5),
    "spins, β = 2": (2, 2.0),
    "three colours, β = 0.5": (3, 0.5),
    "three colours, β = 4": (3, 4.0),
}
SAMPLES = np.array([0.4, 0.7, 1.3, 2.0, 4.0, 8.0])
RATIOS = np.array([0.2, 0.3, 0.4, 0.48, 0.55, 0.7, 0.9, 1.1, 1.5, 2.5])


def vertices(colours: int) -> np.ndarray:
    """Colours as the corners of a regular simplex of mean zero, one in each row; two colours are ±1.

    >>> vertices(2).tolist()
    [[1.0], [-1.0]]
    """
    if colours == 2:
        return np.array([[1.0], [-1.0]])
    centred = np.eye(colours) - 1 / colours
    values, vectors = np.linalg.eigh(centred)
    corners = vectors[:, values > 0.5]
    return corners / np.sqrt(np.mean(np.sum(corners**2, axis=1)) / (colours - 1))


@partial(jax.jit, static_argnums=(1, 2, 4))
def _both_losses(key: Any, coordinates: int, colours: int, strength: Any, samples: tuple[float, ...]) -> Any:
    """Losses of masked regression on sequences and on Gaussians of their covariance, (2, samples).

    All coordinates of one site are masked together. The penalty is small but not zero: cold sequences repeat themselves.
    """
    block = colours - 1
    sites = coordinates // block
    of_law, of_start, of_chain, of_normal = jax.random.split(key, 4)
    law = Factored(
        (strength * glass(of_law, sites)).astype(jnp.float32),
        jnp.asarray(vertices(colours) @ vertices(colours).T, jnp.float32),
        jnp.ones((), jnp.float32),
    )
    numbers = [round(a * coordinates) for a in samples]
    states, _ = gibbs(law, of_chain, random_states(of_start, FRESH + max(numbers), sites, colours), SWEEPS)
    rows = jnp.asarray(vertices(colours))[states].reshape(len(states), coordinates)
    second = rows[:FRESH].T @ rows[:FRESH] / FRESH
    values, vectors = jnp.linalg.eigh(second)
    root = vectors * jnp.sqrt(jnp.maximum(values, 0.0))[None, :]
    normal = jax.random.normal(of_normal, (max(numbers), coordinates), float) @ root.T

    def loss(x: Any) -> Any:
        fit = regress_all(x.T @ x / len(x), jnp.asarray(SMALL), jnp.asarray(len(x)))
        return block_loss(fit.inverse, second, block)

    return jnp.stack([jnp.stack([loss(x[:n]) for n in numbers]) for x in (rows[FRESH:], normal)])


def sequences(quick: bool) -> Any:
    import xarray as xr

    coordinates, seeds = (24, 2) if quick else (120, 12)
    found = [
        [_both_losses(jax.random.key(s), coordinates, colours, jnp.asarray(b), tuple(SAMPLES)) for s in range(seeds)]
        for colours, b in LAWS.values()
    ]
    return xr.Dataset(
        {"test_loss": (("law", "seed", "data", "samples"), np.array(found))},
        {"law": list(LAWS), "data": ["sequences", "Gaussian"], "samples": SAMPLES},
        {"coordinates": coordinates},
    )


@partial(jax.jit, static_argnums=(1, 2))
def _tied_losses(key: Any, size: int, numbers: tuple[int, ...]) -> Any:
    """Losses (nearly) without penalty where x = Bz has half as many degrees of freedom as coordinates."""
    first, second = jax.random.split(key)
    mix = jax.random.normal(first, (size, size // 2), float) / np.sqrt(size // 2)
    x = jax.random.normal(second, (max(numbers), size // 2), float) @ mix.T
    tiny = jnp.asarray(1e-10)
    fits = [regress_all(x[:n].T @ x[:n] / n, tiny, jnp.asarray(n)) for n in numbers]
    return jnp.stack([fit.loss(mix @ mix.T) for fit in fits])


def controls(quick: bool) -> dict[str, Any]:
    import xarray as xr

    size, seeds = (40, 3) if quick else (200, 12)
    numbers = tuple(round(a * size) for a in RATIOS)
    tied = xr.Dataset(
        {
            "test_loss": (
                ("seed", "samples"),
                np.array([_tied_losses(jax.random.key(s), size, numbers) for s in range(seeds)]),
            )
        },
        {"samples": np.array(numbers) / size},
        {"coordinates": size},
    )
    teacher = Perceptron(teacher="linear", loss="square", penalty=1e-4)
    over = {"noise": [0.0, 0.5], "samples": RATIOS}
    supervised = Study(teacher, over, sizes=[size], seeds=seeds).run()
    made = provenance()
    own = {"study": '{"models": ["masked-regression"], "figure": "masked-regression-controls"}', **made}
    return {
        "sequences": sequences(quick).assign_attrs(own),
        "tied": tied.assign_attrs(own),
        "supervised": supervised,
    }


def draw_controls(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    table, tied, supervised = (data[k] for k in ("sequences", "tied", "supervised"))
    figure, axes = plt.subplots(1, 3, figsize=(13.2, 4.0), layout="constrained")
    for law, colour in zip(table.law.values, COLOURS, strict=False):
        here = table.test_loss.sel(law=law)
        axes[0].plot(table.samples, here.sel(data="Gaussian").mean("seed"), color=colour)
        _points(axes[0], table.samples, here.sel(data="sequences"), fmt="o", color=colour, label=law)
    axes[0].set(ylabel="mean square error per coordinate", yscale="log")
    axes[0].set_title(
        f"sequences (points), Gaussians of their\ncovariance (lines); {int(table.attrs['coordinates'])} coordinates"
    )
    axes[0].legend(fontsize=8)
    _points(axes[1], tied.samples, tied.test_loss, fmt="o-", color=COLOURS[0])
    axes[1].axvline(0.5, color=INK, linestyle=":", linewidth=0.8)
    axes[1].set(ylabel="mean square error per coordinate")
    axes[1].set_title("coordinates that are functions of the others:\nno conditional variance, no peak")
    for noise, colour in zip(supervised.noise.values, COLOURS, strict=False):
        runs = supervised.test_loss_simulated.sel(noise=noise).isel(size=-1)
        axes[2].plot(supervised.samples, supervised.test_loss_theory.sel(noise=noise), color=colour)
        name = f"label noise {noise:g}" if noise else "labels without noise"
        _points(axes[2], supervised.samples, runs, fmt="o", color=colour, label=name)
    axes[2].set(ylabel="test loss", yscale="log")
    axes[2].set_ylim(1e-3, 30)
    axes[2].set_title("supervised regression: the peak needs noisy labels")
    axes[2].legend()
    for axis in axes:
        axis.set_xlabel(label("samples per coordinate", "n/d"))
        log_axis(axis.xaxis)
    for axis in axes[::2]:
        axis.axvline(1.0, color=INK, linestyle=":", linewidth=0.8)
    figure.suptitle(
        "Masked regression with little or no penalty: the peak is fed by the noise inherent in the data", fontsize=11
    )
    return figure


def _points(axis: Any, x: Any, runs: Any, **look: Any) -> None:
    error = runs.std("seed", ddof=1) / np.sqrt(runs.sizes["seed"])
    axis.errorbar(x, runs.mean("seed"), error, markersize=4, **look)


# --- where masked learning beats PCA ----------------------------------------------------------------------------------

NOISY = {"covariance": "spiked", "variances": "two-level", "penalty": 0.1}


def region(quick: bool) -> dict[str, Any]:
    model, number = MaskedRegression(**NOISY), 8 if quick else 36
    grid = {"samples": np.geomspace(0.3, 10, number), "spike": np.linspace(0.05, 6.0, number)}
    wanted = ["overlap_left_theory", "pca_overlap_theory", "threshold_theory", "pca_threshold_theory"]
    plane = Study(model, grid).run()[wanted]
    size, seeds = (60, 3) if quick else (400, 8)
    some = {"samples": [0.5, 2.0, 8.0], "spike": [0.8, 2.0, 4.5]}
    points = Study(model, some, sizes=[size], seeds=seeds).run()
    points = points[[v for v in points.data_vars if str(v).startswith(("overlap_left", "pca_overlap"))]]
    local = MaskedRegression(covariance="localised", support=1.0, samples=2.0, penalty=0.1)
    single = Study(local, {"spike": np.linspace(0.05, 6.0, 10 if quick else 60)}).run()
    single = single[[v for v in wanted if v in single]]
    clear = MaskedRegression(covariance="spiked", samples=8.0, penalty=0.1)
    outlier = Study(clear, {"spike": [6.0]}, sizes=[size], seeds=seeds).run()
    return {"": plane, "points": points, "localised": single, "outlier": outlier}


def draw_region(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    plane, points, single, outlier = data[""], data["points"], data["localised"], data["outlier"]
    figure, axes = plt.subplots(1, 3, figsize=(13.2, 4.0), layout="constrained")
    gain = (plane.overlap_left_theory - plane.pca_overlap_theory).transpose("spike", "samples")
    look = {"cmap": "RdBu", "vmin": -1, "vmax": 1}
    mesh = axes[0].pcolormesh(plane.samples, plane.spike, gain, shading="nearest", rasterized=True, **look)
    figure.colorbar(mesh, ax=axes[0], label="squared overlap, masked minus PCA")
    for name, words, dash in (("threshold", "masked detects above", "-"), ("pca_threshold", "PCA detects above", "--")):
        axes[0].plot(plane.samples, plane[f"{name}_theory"].isel(spike=0), dash, color=INK, label=words)
    seen = (points.overlap_left_simulated - points.pca_overlap_simulated).isel(size=-1).mean("seed")
    x, y = np.meshgrid(points.samples, points.spike, indexing="ij")
    axes[0].scatter(x, y, c=seen.transpose("samples", "spike").values, edgecolors=INK, s=60, zorder=3, **look)
    axes[0].set(xlabel=label("samples", "n/d"), ylabel=label("spike", r"\theta"), ylim=(0, 6))
    log_axis(axes[0].xaxis)
    axes[0].grid(False)
    axes[0].set_title(f"a quarter of the coordinates noisy\n(circles: d = {int(points['size'][-1])})")
    axes[0].legend(fontsize=8)
    for name, words, colour in (("overlap_left", "masked", COLOURS[0]), ("pca_overlap", "PCA", COLOURS[2])):
        axes[1].plot(single.spike, single[f"{name}_theory"], color=colour, label=words)
    axes[1].set(xlabel=label("spike", r"\theta"), ylabel="squared overlap with $u$", ylim=(-0.02, 1.02))
    axes[1].set_title("a spike on one coordinate, $n = 2d$:\nPCA finds it, masked learning cannot")
    axes[1].legend()
    measured, width = outlier.spectrum_simulated.isel(spike=0, size=0).mean("seed"), np.diff(EDGES)
    axes[2].bar(outlier["eigenvalue"], measured / width, width, color=COLOURS[5], alpha=0.6, label="experiment")
    line = np.append(outlier.spectrum_theory.isel(spike=0) / width, 0.0)
    axes[2].step(EDGES, line, where="post", color=COLOURS[0], label="theory")
    for name, colour in (("edge", INK), ("outlier", COLOURS[1])):
        axes[2].axvline(float(outlier[f"{name}_theory"].values.flat[0]), color=colour, linestyle=":", label=name)
    axes[2].set(xlabel="eigenvalue of the predictor", ylabel="density", xlim=(-1, 1.05), ylim=(1e-3, 3), yscale="log")
    axes[2].set_title(r"an eigenvalue leaves the bulk: $n = 8d$, $\theta = 6$")
    axes[2].legend(loc="upper left")
    figure.suptitle("Masked regression finds a delocalised direction under unequal noise that PCA misses", fontsize=11)
    return figure


RECIPES = {
    "masked-regression-controls": Recipe(
        controls, draw_controls, also=("perceptron",),
        sentence="Spin and Potts sequences beside Gaussians of their covariance; data and labels without noise have no peak.",
    ),
    "masked-regression-region": Recipe(
        region, draw_region,
        sentence="Where in samples and strength masked learning finds a direction that PCA misses; the outlier in the spectrum.",
    ),
}  # fmt: skip
