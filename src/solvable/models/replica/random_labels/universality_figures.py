"""Random labels beside labels that know the inputs: Gaussian clouds at growing distance, and real data."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from solvable.errors import SolvableError
from solvable.methods.data.digits import digit_images
from solvable.methods.risk.erm import minimise_risk
from solvable.methods.risk.losses import loss_named
from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, MARKERS, label, log_axis
from solvable.study import Study

from .model import RandomLabels

LOSSES = ("hinge", "logistic", "square")
SEPARATIONS = (0.0, 1.0, 2.0, 4.0, 8.0)
SPECTRUM = (0.5, 1.5)  # both clouds have these eigenvalues, half of each
SAMPLES, PENALTY = 3.0, 0.05
DATA_PENALTY = 0.01


@partial(jax.jit, static_argnames=("loss", "number"))
def _fitted(keys: Array, rows: Array, labels: Array, penalty: Array, loss: str, number: int) -> tuple[Array, Array]:
    """Training losses of classifiers of `number` rows, with random labels and with the given ones, for every key."""

    def one(key: Array) -> tuple[Array, Array]:
        order_key, label_key = jax.random.split(key)
        drawn = jax.random.permutation(order_key, rows.shape[0])[:number]
        inputs = rows[drawn] / jnp.sqrt(rows.shape[1])
        signs = jax.random.rademacher(label_key, (number,), dtype=jnp.int32).astype(float)

        def fit(y: Array) -> Array:
            found = minimise_risk(loss_named(loss), inputs, y, penalty, jnp.ones(number))
            mean = jnp.mean(loss_named(loss).value(y, inputs @ found.weights))
            return jnp.where(found.residual < 1e-3, mean, jnp.nan)

        return fit(signs), fit(labels[drawn])

    return jax.vmap(one)(keys)


def clouds(quick: bool) -> dict[str, Any]:
    import xarray as xr

    size, seeds = (40, 4) if quick else (200, 24)
    separations, losses = (SEPARATIONS[::2], LOSSES[1:2]) if quick else (SEPARATIONS, LOSSES)
    spectra, shares = np.tile(SPECTRUM, (2, 1)), np.full(2, 0.5)
    model = RandomLabels(inputs="clouds", spectra=spectra, shares=shares, samples=SAMPLES, penalty=PENALTY)
    study = Study(model, {"loss": list(losses), "separation": list(separations)}, sizes=[size], seeds=seeds).run()
    # the control: the label is the cloud
    number = round(SAMPLES * size)
    known = np.full((len(losses), len(separations), seeds), np.nan)
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        spread = np.sqrt(np.resize(SPECTRUM, size))
        cloud = rng.integers(2, size=number)
        noise, means = rng.normal(size=(number, size)) * spread, rng.normal(size=(2, size))
        means /= np.linalg.norm(means, axis=1, keepdims=True)
        for j, separation in enumerate(separations):
            rows, labels = jnp.asarray(noise + separation * means[cloud]), jnp.asarray(2.0 * cloud - 1)
            for i, loss in enumerate(losses):
                key = jax.random.key(seed)[None]
                known[i, j, seed] = _fitted(key, rows, labels, jnp.asarray(PENALTY), loss, number)[1][0]
    coords = {"loss": list(losses), "separation": list(separations)}
    control = xr.Dataset({"train_loss": (("loss", "separation", "seed"), known)}, coords)
    return {"": study, "control": control}


def draw_clouds(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    study, control = data[""], data["control"]
    size = int(study["size"][-1])
    figure, axes = plt.subplots(1, study.sizes["loss"], figsize=(3.9 * study.sizes["loss"] + 0.6, 3.8), layout="constrained",
                                squeeze=False)  # fmt: skip
    for axis, loss in zip(axes[0], study.loss.values, strict=True):
        line = study.train_loss_theory.sel(loss=loss)
        axis.plot(study.separation, line, color=COLOURS[0], label="one Gaussian (theory)")
        runs = study.train_loss_simulated.sel(loss=loss).isel(size=-1)
        _points(axis, study.separation, runs, color=COLOURS[0], fmt="o", label="random labels")
        known = control.train_loss.sel(loss=loss)
        _points(axis, control.separation, known, color=COLOURS[1], fmt="s:", label="labels that know the cloud")
        axis.set(xlabel=label("length of the clouds' means", r"|\mu|"), ylim=(0, None))
        axis.set_title(f"{loss} loss, n/p = {SAMPLES:g}, p = {size}")
    axes[0, 0].set_ylabel(label("training loss", r"\mathcal{L}_t"))
    axes[0, 0].legend()
    figure.suptitle(
        "Two clouds with random labels have the training loss of one Gaussian, at any distance", fontsize=11
    )
    return figure


def _tables() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Rows (standardised columns for the table) and true labels ±1."""
    try:
        from sklearn.datasets import load_breast_cancer, load_sample_image
    except ImportError:
        raise SolvableError("these data come with scikit-learn: pip install scikit-learn.") from None
    pictures, shown = digit_images()
    table, kind = (np.asarray(part) for part in load_breast_cancer(return_X_y=True))
    grey = np.asarray(load_sample_image("china.jpg"), float).mean(-1)
    rows, columns = np.random.default_rng(0).integers(0, np.array(grey.shape)[:, None] - 8, (2, 4000))
    patches = np.stack([grey[i : i + 8, j : j + 8].ravel() for i, j in zip(rows, columns, strict=True)])
    return {
        "digits": (pictures[:, pictures.std(0) > 0], np.where(shown >= 5, 1.0, -1.0)),
        "breast-cancer table": ((table - table.mean(0)) / table.std(0), np.where(kind > 0, 1.0, -1.0)),
        "photograph, 8 × 8": (patches, np.where(rows < np.median(rows), 1.0, -1.0)),
    }


def real_data(quick: bool) -> dict[str, Any]:
    import xarray as xr

    samples, seeds = ((3.0,), 4) if quick else ((1.5, 3.0, 6.0, 12.0), 64)
    losses, tables = LOSSES[1:2] if quick else LOSSES, _tables()
    keys = jax.random.split(jax.random.key(0), seeds)
    shape = (len(tables), len(losses), len(samples))
    lines, runs = np.full(shape, np.nan), np.full((*shape, 2, seeds), np.nan)
    for i, (rows, truth) in enumerate(tables.values()):
        model = RandomLabels(inputs="given", rows=rows, penalty=DATA_PENALTY)
        rows = rows - rows.mean(0)
        rows = jnp.asarray(rows / np.sqrt((rows**2).mean()))
        for j, loss in enumerate(losses):
            for k, ratio in enumerate(samples):
                number = round(ratio * rows.shape[1])
                at = model.replace(samples=number / rows.shape[1], loss=loss).theory(only=["train_loss"])
                lines[i, j, k] = float(at.train_loss)
                runs[i, j, k] = np.asarray(
                    _fitted(keys, rows, jnp.asarray(truth), jnp.asarray(DATA_PENALTY), loss, number)
                )
    dims, coords = ("data", "loss", "samples"), {"data": list(tables), "loss": list(losses), "samples": list(samples)}
    return {
        "": xr.Dataset({"theory": (dims, lines), "train_loss": ((*dims, "labels", "seed"), runs)},
                       {**coords, "labels": ["random", "true"]})
    }  # fmt: skip


def draw_real_data(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    runs = data[""]
    figure, panels = plt.subplots(1, runs.sizes["data"], figsize=(12.6, 3.9), layout="constrained", squeeze=False)
    axes = panels[0]
    for axis, name in zip(axes, runs.data.values, strict=True):
        for loss, colour, marker in zip(runs.loss.values, COLOURS, MARKERS, strict=False):
            at = runs.sel(data=name, loss=loss)
            axis.plot(runs.samples, at.theory, color=colour, label=f"{loss}: one Gaussian (theory)")
            _points(
                axis, runs.samples, at.train_loss.sel(labels="random"), color=colour, fmt=marker, label="random labels"
            )
            _points(axis, runs.samples, at.train_loss.sel(labels="true"), color=colour, fmt=f"{marker}:",
                    markerfacecolor="white", label="true labels")  # fmt: skip
        axis.set(xlabel=label("samples per input", "n/p"), ylim=(0, None))
        axis.set_title(str(name))
        log_axis(axis.xaxis)
    axes[0].set_ylabel(label("training loss", r"\mathcal{L}_t"))
    axes[0].set_ylim(0, 1.15)
    lines = [line for line in axes[0].get_lines() if not str(line.get_label()).startswith("_")]
    axes[0].legend(handles=lines, fontsize=8, loc="upper left")
    figure.suptitle(
        "Random labels: digits and a table have the training loss of one Gaussian, patches of a photograph exceed it; true "
        "labels (open) are learnt",
        fontsize=11,
    )
    return figure


def _points(axis: Any, x: Any, runs: Any, **look: Any) -> None:
    error = runs.std("seed", ddof=1) / np.sqrt(runs.sizes["seed"])
    axis.errorbar(x, runs.mean("seed"), error, markersize=4.5, linewidth=1, **look)


RECIPES = {
    "random-labels-clouds": Recipe(
        clouds,
        draw_clouds,
        sentence="Training loss on two Gaussian clouds against their distance: random labels do not see the clouds.",
    ),
    "random-labels-data": Recipe(
        real_data,
        draw_real_data,
        sentence="Training loss on digits, a table and a photograph with random and true labels, beside one Gaussian.",
    ),
}
