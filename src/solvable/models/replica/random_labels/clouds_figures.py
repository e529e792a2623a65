"""Random labels on clouds at several distances and on real inputs, beside one Gaussian; labels that mean something as control."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from solvable.methods.data.patches import image_patches
from solvable.methods.risk.erm import minimise_risk
from solvable.methods.risk.losses import loss_named
from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, MARKERS, label, log_axis
from solvable.study import Study

from .model import RandomLabels, digits

PENALTY = 0.01
SEPARATIONS = (0.0, 3.0, 10.0)
RAMP = np.tile((np.arange(32) + 0.5) / 16, (2, 1))
"""Two clouds of one covariance."""


def tables() -> dict[str, np.ndarray]:
    """Real inputs that come with scikit-learn: image patches and measurements of tumours, each column of variance one."""
    from sklearn.datasets import load_breast_cancer

    cells = np.asarray(load_breast_cancer(return_X_y=True)[0])
    return {"image patches": image_patches(8, 4000), "tumours": (cells - cells.mean(0)) / cells.std(0)}


def _knowing(inputs: np.ndarray, labels: np.ndarray, numbers: list[int], seeds: int) -> np.ndarray:
    """Training losses with labels that belong to the inputs, (numbers, seeds); rows are drawn without replacement."""
    loss, found = loss_named("logistic"), np.full((len(numbers), seeds), np.nan)
    fit = jax.jit(lambda a, y: minimise_risk(loss, a, y, jnp.asarray(PENALTY), jnp.ones_like(y)))
    for i, number in enumerate(numbers):
        for seed in range(seeds):
            rows = np.random.default_rng([seed, number]).choice(len(inputs), number, replace=False)
            a, y = jnp.asarray(inputs[rows] / np.sqrt(inputs.shape[1])), jnp.asarray(labels[rows])
            found[i, seed] = float(jnp.mean(loss.value(y, a @ fit(a, y).weights)))
    return found


def clouds(quick: bool) -> dict[str, Any]:
    import xarray as xr
    from sklearn.datasets import load_digits

    samples, size, seeds = ([3.0], 40, 4) if quick else ([1.5, 3.0, 6.0], 160, 16)
    model = RandomLabels(inputs="clouds", spectra=RAMP, shares=np.array([0.5, 0.5]), penalty=PENALTY)
    line = Study(model, {"samples": np.geomspace(0.5, 10, 41)}).run()
    drawn = Study(model, {"separation": list(SEPARATIONS), "samples": samples}, sizes=[size], seeds=seeds).run()
    real = {
        name: Study(
            RandomLabels(inputs="given", rows=rows, penalty=PENALTY),
            {"samples": samples[:1] if quick else [1.5, 3.0, 6.0, 12.0]}, sizes=[rows.shape[1]], seeds=seeds,
        ).run()
        for name, rows in tables().items()
    }  # fmt: skip
    # controls: labels that name the cloud, and the parity of a digit
    rng = np.random.default_rng(0)
    cloud = rng.choice([-1.0, 1.0], 4 * int(max(samples) * size))
    mean = rng.normal(size=size)
    spread = np.sqrt(RAMP[0][(2 * np.arange(size) + 1) * RAMP.shape[1] // (2 * size)])
    inputs = rng.normal(size=(len(cloud), size)) * spread + 3.0 * cloud[:, None] * mean / np.linalg.norm(mean)
    numbers = [round(a * size) for a in samples]
    pixels, parity = digits(), np.where(np.asarray(load_digits(return_X_y=True)[1]) % 2 == 0, 1.0, -1.0)
    few = [round(a * pixels.shape[1]) for a in samples]
    control = xr.Dataset(
        {
            "clouds": (("samples", "seed"), _knowing(inputs, cloud, numbers, seeds)),
            "digits": (("samples", "seed"), _knowing(pixels, parity, few, seeds)),
            "digits_random": (
                "samples",
                np.asarray(RandomLabels(inputs="digits", penalty=PENALTY, samples=samples).theory().train_loss),
            ),
        },
        coords={"samples": samples},
    )
    return {"": line, "drawn": drawn, "control": control.assign_attrs(line.attrs)} | {
        name.split()[-1]: table for name, table in real.items()
    }


def draw_clouds(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    line, drawn, control = data[""], data["drawn"], data["control"]
    figure, axes = plt.subplots(1, 2, figsize=(9.6, 4.0), layout="constrained")
    axes[0].plot(line.samples, line.train_loss_theory, color="0.3", label="one Gaussian (theory)")
    for separation, colour, marker in zip(drawn.separation.values, COLOURS, MARKERS, strict=False):
        here = drawn.train_loss_simulated.sel(separation=separation).isel(size=-1)
        _points(
            axes[0], drawn.samples, here, fmt=marker, color=colour, label=f"two clouds, means of length {separation:g}"
        )
    _points(
        axes[0], control.samples, control.clouds, fmt="x", color=COLOURS[6], label="labels name the cloud (length 3)"
    )
    axes[0].set_title(f"two clouds of one covariance, p = {int(drawn['size'][-1])}")
    for (part, words), colour in zip({"patches": "image patches", "tumours": "tumours"}.items(), COLOURS, strict=False):
        runs = data[part].isel(size=-1)
        expected = runs.train_loss_expected
        expected = expected.mean("seed") if "seed" in expected.dims else expected
        axes[1].plot(runs.samples, expected, color=colour)
        name = f"{words}, p = {int(data[part]['size'][-1])}"
        _points(axes[1], runs.samples, runs.train_loss_simulated, fmt="o", color=colour, label=name)
    axes[1].plot(
        control.samples, control.digits_random, color=COLOURS[5], linestyle="--", label="digits, random labels"
    )
    _points(axes[1], control.samples, control.digits, fmt="x", color=COLOURS[6], label="digits, even or odd")
    axes[1].set_title("real inputs; lines: Gaussian of their covariance")
    for axis in axes:
        axis.set(xlabel=label("samples", "n/p"), ylabel=label("training loss", r"\mathcal{L}_t"), ylim=(0, None))
        log_axis(axis.xaxis)
        axis.legend(fontsize=7.5)
    figure.suptitle(
        rf"Random labels see only the covariance; labels that belong to the inputs do not (logistic, $\lambda = {PENALTY:g}$)",
        fontsize=11,
    )
    return figure


def _points(axis: Any, x: Any, runs: Any, **look: Any) -> None:
    error = runs.std("seed", ddof=1) / np.sqrt(runs.sizes["seed"])
    axis.errorbar(x, runs.mean("seed"), error, markersize=5, **look)


RECIPES = {
    "random-labels-clouds": Recipe(
        clouds,
        draw_clouds,
        sentence="Random labels on clouds at any distance and on real inputs cost as much as on one Gaussian; true labels less.",
    )
}
