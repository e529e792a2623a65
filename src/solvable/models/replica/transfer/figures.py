"""Gain of a transferred first layer over random features and training from scratch, against samples and correlation."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, INK, MARKERS, label, log_axis, standard_error
from solvable.study import Study

from .model import Transfer

CORRELATIONS = np.array([0.0, 0.25, 0.5, 0.65, 0.8, 0.9, 1.0])
SHOWN = (1.0, 0.9, 0.5)
PLANE_SAMPLES = 8.0


def errors(size: int, source: int, feature: float, teacher: float, samples: np.ndarray) -> np.ndarray:
    """Theoretical test errors with the source's and with random features, (2, samples), for one draw of the target."""
    model = Transfer(features="network", instance=source, feature_correlation=feature, teacher_correlation=teacher)
    ready = model.prepare(jax.random.key(1000 + source), size).replace(
        features="given", layers=None, manifold=None, teacher=None
    )
    out = ready.with_values({"samples": jnp.asarray(samples)}).theory()
    return np.stack([out.test_error, out.random_error])


def gain(quick: bool) -> dict[str, Any]:
    import xarray as xr

    size, sources = (16, 1) if quick else (50, 3)
    correlations = np.array([0.0, 0.5, 1.0]) if quick else CORRELATIONS
    samples = np.geomspace(1.0, 40.0, 12)
    both = np.stack([[errors(size, s, q, q, samples) for q in correlations] for s in range(sources)])
    table = xr.Dataset(
        {"test_error": (("source", "correlation", "map", "samples"), both)},
        {"correlation": correlations, "map": ["source", "random"], "samples": samples, "source": np.arange(sources)},
    )
    grid = np.array([0.0, 1.0]) if quick else np.array([0.0, 0.3, 0.6, 0.8, 0.9, 1.0])
    here = np.array([PLANE_SAMPLES])
    plane = np.stack(
        [[[errors(size, s, f, t, here)[:, 0] for t in grid] for f in grid] for s in range(1 if quick else 2)]
    )
    separate = xr.Dataset(
        {"test_error": (("source", "feature", "teacher", "map"), plane)},
        {"feature": grid, "teacher": grid, "map": ["source", "random"]},
    )
    arms = {f"{q:g}": {"feature_correlation": q, "teacher_correlation": q} for q in (SHOWN[:1] if quick else SHOWN)}
    model = Transfer(features="network", baseline="scratch")
    curves = Study(model, {"samples": [2.0, 8.0] if quick else [1.5, 4.0, 10.0, 25.0]}, arms=arms, sizes=[size],
                   seeds=2 if quick else 4).run()  # fmt: skip
    alone = Study(
        model, {"samples": samples[::4] if quick else samples[::2]}, sizes=[size], seeds=2 if quick else 8
    ).run()
    return {"": curves, "gain": table.assign_attrs(curves.attrs), "plane": separate.assign_attrs(curves.attrs),
            "scratch": alone}  # fmt: skip


def draw_gain(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    curves, table, plane, alone = data[""], data["gain"], data["plane"], data["scratch"]
    figure, panels = plt.subplots(2, 2, figsize=(10.6, 8.0), layout="constrained")
    axes = panels.ravel()
    mean = table.test_error.mean("source")
    size = int(curves["size"][-1])

    chosen = [(float(a), a) for a in curves.arm.values]
    for (q, arm), colour, marker in zip(chosen, COLOURS, MARKERS, strict=False):
        axes[0].plot(table.samples, mean.sel(map="source", correlation=q), color=colour,
                     label=f"source's features, q = {q:g}")  # fmt: skip
        _points(axes[0], curves.sel(arm=arm), "test_error", fmt=marker, color=colour)
    axes[0].plot(
        table.samples, mean.sel(map="random").mean("correlation"), color=INK, linestyle="--", label="random features"
    )
    _points(axes[0], curves.sel(arm=chosen[0][1]), "random_error", fmt="x", color=INK)
    _points(axes[0], alone, "scratch_error", fmt="d:", color="0.5", label="both layers, target alone")
    axes[0].set(xlabel=label("samples of the target", "n/d"), ylabel=label("test error", r"\varepsilon_g"))
    axes[0].set_title(f"theory (mean of {table.sizes['source']} sources), experiment at d = {size}")
    log_axis(axes[0].xaxis)
    axes[0].legend(fontsize=8)

    difference = mean.sel(map="random") - mean.sel(map="source")
    _map(figure, axes[1], table.samples.values, table.correlation.values, difference.values)
    axes[1].set(xlabel=label("samples of the target", "n/d"), ylabel=r"correlation $q_F = q_\theta$")
    axes[1].set_title("gain over random features (theory)")
    log_axis(axes[1].xaxis)

    # Training from scratch does not depend on the source: use its measured errors, interpolated, at every correlation.
    scratch = alone.scratch_error_simulated.isel(size=-1).mean("seed")
    known = mean.sel(map="source", samples=slice(None, float(alone.samples[-1]))).transpose("correlation", "samples")
    measured = np.interp(np.log(known.samples), np.log(alone.samples), scratch)
    _map(figure, axes[2], known.samples.values, known.correlation.values, measured[None, :] - known.values)
    axes[2].set(xlabel=label("samples of the target", "n/d"), ylabel=r"correlation $q_F = q_\theta$")
    axes[2].set_title("gain over both layers trained on the target alone (measured)")
    log_axis(axes[2].xaxis)

    here = plane.test_error.mean("source")
    _map(
        figure,
        axes[3],
        plane.teacher.values,
        plane.feature.values,
        (here.sel(map="random") - here.sel(map="source")).values,
    )
    axes[3].set(xlabel=label("correlation of teachers", r"q_\theta"), ylabel=label("correlation of manifolds", "q_F"))
    axes[3].set_title(f"gain over random features at n/d = {PLANE_SAMPLES:g} (theory)")
    figure.suptitle(
        "A frozen first layer learnt on a source helps if the tasks are similar and target samples few; otherwise it hurts",
        fontsize=11,
    )
    return figure


def _points(axis: Any, curves: Any, name: str, **look: Any) -> None:
    runs = curves[f"{name}_simulated"].isel(size=-1)
    error = standard_error(runs)
    axis.errorbar(curves.samples, runs.mean("seed"), error, markersize=4.5, **look)


def _map(figure: Any, axis: Any, x: np.ndarray, y: np.ndarray, values: np.ndarray) -> None:
    """Draw a map from red (loss) through white to blue (gain), with the line of zero gain."""
    most = float(np.abs(values).max())
    drawn = axis.pcolormesh(x, y, values, cmap="RdBu", vmin=-most, vmax=most, shading="nearest", rasterized=True)
    figure.colorbar(drawn, ax=axis, label="gain in test error")
    axis.grid(False)
    if values.min() < 0 < values.max():
        axis.contour(x, y, values, levels=[0.0], colors=INK, linewidths=1.2)


RECIPES = {
    "transfer-gain": Recipe(
        gain,
        draw_gain,
        sentence="Gain of a first layer learnt on a source over random features, against target samples and correlation.",
    )
}
