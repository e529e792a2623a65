"""A census of the minima of a sum of ReLUs reached from random starts: their losses, symmetry, and flat directions."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, label

from .model import ReluLandscape
from .relu_loss import relu_curvature, relu_gradient, relu_loss

REST = 1e-7  # root mean square gradient below which a descent has ended
SOLVED = 1e-6  # loss of a global minimum
ALIKE = 1e-4  # losses closer than this belong to one kind of minimum


@partial(jax.jit, static_argnums=(1, 2, 3, 4))
def descend(key: Any, units: int, teachers: int, starts: int, steps: int) -> Any:
    """Gradient descent with momentum on the exact loss, from random weights in d = M dimensions.

    Returns losses, root mean square gradients, lowest curvatures, and the numbers of zero curvatures and of turned units:
    a unit is turned if its largest overlap with a teacher, in absolute value, is negative.
    """
    teacher = jnp.eye(teachers)
    w = jax.random.normal(key, (starts, units, teachers)) / np.sqrt(teachers)
    pull, pace = jax.vmap(lambda v: relu_gradient(v, teacher)), 4 / (units + 8)

    def step(number: Any, carry: Any) -> Any:
        w, speed = carry
        memory = jnp.where(number < steps // 2, 0.8, 0.95)
        speed = memory * speed - (1 - memory) / 0.2 * pace * pull(w)
        return w + speed, speed

    w, _ = jax.lax.fori_loop(0, steps, step, (w, jnp.zeros_like(w)))
    basis = jnp.eye(units * teachers).reshape(-1, units, teachers)
    curvature = jax.lax.map(lambda v: jnp.linalg.eigvalsh(relu_curvature(v, teacher, basis)), w, batch_size=32)
    largest = jnp.take_along_axis(w, jnp.argmax(jnp.abs(w), axis=2)[..., None], axis=2)[..., 0]
    return (
        jax.vmap(lambda v: relu_loss(v, teacher))(w),
        jnp.sqrt(jnp.mean(pull(w) ** 2, axis=(1, 2))),
        curvature[:, 0],
        jnp.sum(jnp.abs(curvature) < 1e-6, axis=1),
        jnp.sum(largest < 0, axis=1),
    )


def census(quick: bool) -> dict[str, Any]:
    import xarray as xr

    teachers, starts, steps = ((6,), 16, 200) if quick else ((6, 8, 10), 256, 6000)
    extra = (0,) if quick else (0, 1, 2)
    names = ("loss", "gradient", "lowest", "flat", "turned")
    dims, shape = ("teachers", "extra", "start"), (len(teachers), len(extra), starts)
    table = xr.Dataset(
        {n: (dims, np.full(shape, np.nan)) for n in names}, {"teachers": list(teachers), "extra": list(extra)}
    )
    for m in teachers:
        for more in extra:
            found = descend(jax.random.key(100 * m + more), m + more, m, starts, steps)
            for name, values in zip(names, found, strict=True):
                table[name].loc[{"teachers": m, "extra": more}] = np.asarray(values, float)
    family = ReluLandscape(teachers=teachers[0])
    losses = [float(family.replace(teachers=m).theory(only=["test_loss"]).test_loss) for m in teachers]
    return {"": table.assign(family=("teachers", np.array(losses)))}


def kinds(losses: np.ndarray) -> list[tuple[float, int]]:
    """Losses of spurious minima grouped by value, with the number of starts that ended at each.

    >>> kinds(np.array([0.0, 0.02, 0.02000001, 0.05]))
    [(0.02, 2), (0.05, 1)]
    """
    found: list[list[float]] = []
    for value in np.sort(losses[losses > SOLVED]):
        if found and value - found[-1][-1] < ALIKE:
            found[-1].append(float(value))
        else:
            found.append([float(value)])
    return [(round(float(np.median(group)), 6), len(group)) for group in found]


def minima(table: Any, teachers: int, extra: int = 0) -> Any:
    """The descents that ended at a minimum: a small gradient and no negative curvature."""
    here = table.sel(teachers=teachers, extra=extra)
    there = (here.gradient < REST) & (here.lowest > -1e-6)
    return here.isel(start=np.flatnonzero(there.values))


def draw_census(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    table = data[""]
    figure, axes = plt.subplots(1, 3, figsize=(13.0, 4.0), layout="constrained")
    for m, colour in zip(table.teachers.values, COLOURS, strict=False):
        here = minima(table, int(m))
        for value, number in kinds(here.loss.values):
            axes[0].plot(m, value, "o", color=colour, markersize=3 + 2 * np.log10(number + 1), alpha=0.8)
        axes[0].plot(m, float(table.family.sel(teachers=m)), "_", color="black", markersize=22)
        spurious = here.isel(start=np.flatnonzero((here.loss > SOLVED).values))
        axes[1].plot(
            spurious.turned + 0.08 * (m - 9), spurious.loss, ".", color=colour, alpha=0.4, label=f"M = {int(m)}"
        )
    axes[0].set(xlabel=label("teachers", "M"), ylabel=label("loss", "L"))
    axes[0].set_title(
        "kinds of spurious minima (circles: the larger,\nthe more starts), family of five unknowns (bars)"
    )
    axes[1].set(xlabel="turned units", ylabel=label("loss", "L"))
    axes[1].set_title("a hierarchy: each turned unit costs about as much")
    axes[1].legend(fontsize=8)
    share = 0.8 / table.sizes["teachers"]
    for place, (m, colour) in enumerate(zip(table.teachers.values, COLOURS, strict=False)):
        flat = [float(_mean_flat(table, int(m), int(k))) for k in table.extra.values]
        at = table.extra.values + share * (place - (table.sizes["teachers"] - 1) / 2)
        axes[2].bar(at, flat, share, color=colour, label=f"M = {int(m)}")
    axes[2].set(xlabel="extra units of the student, $K - M$", ylabel="zero curvatures at the end (mean)")
    axes[2].set_xticks(table.extra.values)
    axes[2].set_title("isolated at K = M, flat directions beyond")
    axes[2].legend(fontsize=8)
    figure.suptitle(f"Where {table.sizes['start']} descents from random weights end, at every width", fontsize=11)
    return figure


def _mean_flat(table: Any, teachers: int, extra: int) -> Any:
    here = table.sel(teachers=teachers, extra=extra)
    return here.flat.where(here.gradient < REST).mean()


RECIPES = {
    "relu-landscape-census": Recipe(
        census,
        draw_census,
        sentence="Where descents from random weights end: many kinds of spurious minima, and flat directions in wider networks.",
    )
}
