"""What the interpolation peak feeds on, and whether Gaussians of equal covariance describe sequences of spins and colours."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvable.render.figures import Recipe
from solvable.render.pieces import Pieces
from solvable.render.plots import COLOURS, INK, label, log_axis, standard_error

LAWS = {
    "spins, β = 0.5": (2, 0.5),
    "spins, β = 2": (2, 2.0),
    "three colours, β = 0.5": (3, 0.5),
    "three colours, β = 4": (3, 4.0),
}
FRESH, SWEEPS = 4000, 64
"""Sequences that measure the covariance, and Gibbs sweeps from random sequences."""
SMALL = 0.01
"""Penalty on sequences: small but not zero, because cold sequences repeat themselves."""
SAMPLES = np.array([0.4, 0.7, 1.3, 2.0, 4.0, 8.0])
RATIOS = np.array([0.2, 0.3, 0.4, 0.48, 0.55, 0.7, 0.9, 1.1, 1.5, 2.5])


def vertices(colours: int) -> np.ndarray:
    """Colours as the corners of a regular simplex of mean zero, one in each row; two colours are ±1.

    >>> vertices(2).tolist()
    [[1.0], [-1.0]]
    """
    if colours == 2:
        return np.array([[1.0], [-1.0]])
    values, vectors = np.linalg.eigh(np.eye(colours) - 1 / colours)
    corners = vectors[:, values > 0.5]
    return corners / np.sqrt(np.mean(np.sum(corners**2, axis=1)) / (colours - 1))


def gibbs(rng: np.random.Generator, couplings: np.ndarray, corners: np.ndarray, chains: int) -> np.ndarray:
    """Sequences from exp(Σ_{i<j} J_ij s_i·s_j), s_i the corner of site i's colour, one from each chain: (chain, site, block)."""
    sites, colours = len(couplings), len(corners)
    spins = corners[rng.integers(colours, size=(chains, sites))]
    for _ in range(SWEEPS):
        for site in range(sites):
            field = np.einsum("j,cjb->cb", couplings[site], spins)
            weights = np.exp(field @ corners.T)
            sums = np.cumsum(weights, axis=1)
            spins[:, site] = corners[np.sum(sums < rng.random(chains)[:, None] * sums[:, -1:], axis=1)]
    return spins


def masked_loss(rows: np.ndarray, covariance: np.ndarray, block: int, penalty: float) -> float:
    """Error per coordinate of ridge regressions of each block of coordinates on all others, one regression after the other."""
    number, size = rows.shape
    total = 0.0
    for first in range(0, size, block):
        own = np.arange(first, first + block)
        rest = np.delete(np.arange(size), own)
        second = rows[:, rest].T @ rows[:, rest] / number + penalty * np.eye(len(rest))
        answer = np.linalg.solve(second, rows[:, rest].T @ rows[:, own] / number)
        residual = np.zeros((size, block))
        residual[own, np.arange(block)], residual[rest] = 1.0, -answer
        total += np.trace(residual.T @ covariance @ residual)
    return total / size


def both_losses(seed: int, coordinates: int, colours: int, strength: float) -> np.ndarray:
    """Losses on sequences and on Gaussians of their covariance, (2, samples); the coordinates of a site are masked together."""
    rng, block = np.random.default_rng([seed, colours, round(100 * strength)]), colours - 1
    sites = coordinates // block
    half = np.tril(rng.normal(size=(sites, sites)), -1) / np.sqrt(sites)
    numbers = [round(a * coordinates) for a in SAMPLES]
    rows = gibbs(rng, strength * (half + half.T), vertices(colours), FRESH + max(numbers)).reshape(-1, coordinates)
    covariance = rows[:FRESH].T @ rows[:FRESH] / FRESH
    values, vectors = np.linalg.eigh(covariance)
    normal = rng.normal(size=(max(numbers), coordinates)) @ (vectors * np.sqrt(np.maximum(values, 0.0))).T
    return np.array([[masked_loss(x[:n], covariance, block, SMALL) for n in numbers] for x in (rows[FRESH:], normal)])


QUICK, FULL = {"coordinates": 12, "seeds": 2}, {"coordinates": 40, "seeds": 48}


def losses_of_law(law: str, seeds: Any, coordinates: int, pieces: Pieces) -> np.ndarray:
    """Both losses for several seeds, (seed, 2, samples); every seed is a piece."""

    def piece(seed: int) -> np.ndarray:
        settings = [coordinates, LAWS[law], FRESH, SWEEPS, SMALL, SAMPLES.tolist()]
        losses = pieces.get(f"{law} {seed}", settings, lambda: {"losses": both_losses(seed, coordinates, *LAWS[law])})
        return losses["losses"]

    return np.stack([piece(seed) for seed in seeds])


def controls(quick: bool, pieces: Pieces | None = None) -> dict[str, Any]:
    import xarray as xr

    (coordinates, many), (size, seeds) = (QUICK if quick else FULL).values(), (20, 2) if quick else (60, 8)
    found = [losses_of_law(law, range(many), coordinates, pieces or Pieces()) for law in LAWS]
    sequences = xr.Dataset(
        {"test_loss": (("law", "seed", "data", "samples"), np.array(found))},
        {"law": list(LAWS), "data": ["sequences", "Gaussian"], "samples": SAMPLES},
        {"coordinates": coordinates},
    )
    numbers = [round(a * size) for a in RATIOS]
    tied, taught = np.zeros((seeds, len(numbers))), np.zeros((2, seeds, len(numbers)))
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        mix = rng.normal(size=(size, size // 2)) / np.sqrt(size // 2)
        x = rng.normal(size=(max(numbers), size // 2)) @ mix.T
        tied[seed] = [masked_loss(x[:n], mix @ mix.T, 1, 1e-10) for n in numbers]
        inputs, teacher = rng.normal(size=(max(numbers), size)), rng.normal(size=size) / np.sqrt(size)
        for i, noise in enumerate((0.0, 0.5)):
            y = inputs @ teacher + np.sqrt(noise) * rng.normal(size=max(numbers))
            least = [np.linalg.lstsq(inputs[:n], y[:n], rcond=None)[0] for n in numbers]
            taught[i, seed] = [0.5 * np.sum((w - teacher) ** 2) + 0.5 * noise for w in least]
    ratios = np.array(numbers) / size
    return {
        "sequences": sequences,
        "tied": xr.Dataset({"test_loss": (("seed", "samples"), tied)}, {"samples": ratios}),
        "supervised": xr.Dataset(
            {"test_loss": (("noise", "seed", "samples"), taught)}, {"noise": [0.0, 0.5], "samples": ratios}
        ),
    }


def draw_controls(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    table, tied, supervised = (data[k] for k in ("sequences", "tied", "supervised"))
    figure, axes = plt.subplots(1, 3, figsize=(13.2, 4.0), layout="constrained")
    for law, colour in zip(table.law.values, COLOURS, strict=False):
        here = table.test_loss.sel(law=law)
        axes[0].plot(table.samples, here.sel(data="Gaussian").mean("seed"), color=colour)
        _points(axes[0], table.samples, here.sel(data="sequences"), fmt="o", color=colour, label=str(law))
    axes[0].set(ylabel="mean square error per coordinate", yscale="log")
    number = int(table.attrs["coordinates"])
    axes[0].set_title(f"sequences (points), Gaussians of their\ncovariance (lines); {number} coordinates")
    axes[0].legend(fontsize=8)
    _points(axes[1], tied.samples, tied.test_loss, fmt="o-", color=COLOURS[0])
    axes[1].axvline(0.5, color=INK, linestyle=":", linewidth=0.8)
    axes[1].set(ylabel="mean square error per coordinate")
    axes[1].set_title("coordinates that are functions of the others:\nno conditional variance, no peak")
    for noise, colour in zip(supervised.noise.values, COLOURS, strict=False):
        name = f"label noise {noise:g}" if noise else "labels without noise"
        _points(axes[2], supervised.samples, supervised.test_loss.sel(noise=noise), fmt="o-", color=colour, label=name)
    axes[2].set(ylabel="test loss", yscale="log", ylim=(1e-3, 50))
    axes[2].set_title("supervised regression: the peak needs noisy labels")
    axes[2].legend()
    for axis in axes:
        axis.set_xlabel(label("samples per coordinate", "n/d"))
        log_axis(axis.xaxis)
    for axis in axes[::2]:
        axis.axvline(1.0, color=INK, linestyle=":", linewidth=0.8)
    figure.suptitle(
        "Regression with little or no penalty: the peak is fed by the noise inherent in the data", fontsize=11
    )
    return figure


def _points(axis: Any, x: Any, runs: Any, **look: Any) -> None:
    error = standard_error(runs)
    axis.errorbar(x, runs.mean("seed"), error, markersize=4, **look)


RECIPES = {
    "masked-regression-controls": Recipe(
        controls,
        draw_controls,
        resumes=True,
        sentence="Spin and Potts sequences beside Gaussians of their covariance; data and labels without noise have no peak.",
    )
}
