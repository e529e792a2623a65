"""The compiled programs of a model, one per class, choices and shapes: theory, branches, batches of simulations.

They use a model only through its interface (`point`, `experiment`, `fields`); the user-facing methods are in `model`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from ..errors import InvalidValue, SolvableError

if TYPE_CHECKING:
    from ..model import Model, Numerics


class Count(eqx.Module):
    """A number of items in a simulation: `actual` of them (traced), in arrays padded to length `padded` (static).

    With padding, a sweep over (for example) the number of samples needs only a few compiled programs. Draws of shape
    `(padded, ...)` have the same leading rows for every padding, so the realisation does not depend on it.
    """

    actual: Array
    padded: int = eqx.field(static=True)

    def mask(self, dtype: Any = float) -> Array:
        """One for the rows that exist, zero for the padding."""
        return (jnp.arange(self.padded, dtype=jnp.int32) < self.actual).astype(dtype)


@eqx.filter_jit
def _theory(model: Model, numerics: Numerics, only: tuple[str, ...] | None = None):
    return _over_controls(model, lambda m: _some(m.point(numerics), only))


@eqx.filter_jit
def _branches(model: Model, numerics: Numerics):
    return _over_controls(model, lambda m: m.point_branches(numerics), extra=1)


def _over_controls(model: Model, point: Any, extra: int = 0):
    """Broadcast the controls, flatten, `vmap` over the controls only, mask unconverged values, reshape.

    `extra` axes (of branches) come before an observable's own axes.
    """
    controls = model.controls()
    shape = np.broadcast_shapes(*(v.shape for v in controls.values()))
    flat = {n: jnp.broadcast_to(v, shape).reshape(-1) for n, v in controls.items()}
    values = _in_batches(lambda c: point(model.with_values(c)), flat, type(model).theory_lanes)
    values = values if extra else within_bounds(values, model)
    outcome = masked(values, axes_along(model, extra), 1 + extra)
    return jax.tree.map(lambda v: v.reshape(shape + v.shape[1:]), outcome)


def _some(values: dict[str, Array], only: tuple[str, ...] | None) -> dict[str, Array]:
    """The requested observables and their convergence; the compiler then removes everything they do not need."""
    if only is None:
        return values
    kept = {*only, *(f"{name}_converged" for name in only), "converged", "residual"}
    return {name: value for name, value in values.items() if name in kept}


def _in_batches(function: Any, flat: dict[str, Array], most: int) -> dict[str, Array]:
    """Apply a function to at most `most` lanes at a time; the last batch is padded with its last lane.

    A lane by itself is not batched: its program is traced and compiled in a fraction of the time. With `most = 1`, loops
    inside the function are not batched at all, so each stops as soon as it has finished.
    """
    if not flat:  # a model without controls is one point
        return {n: jnp.asarray(v)[None] for n, v in function({}).items()}
    if most == 1:
        return jax.lax.map(function, flat)
    number = next(v.shape[0] for v in flat.values())
    if number == 1:
        return {n: jnp.asarray(v)[None] for n, v in function({n: v[0] for n, v in flat.items()}).items()}
    function = jax.vmap(function)
    if number <= most:
        return function(flat)
    batches = -(-number // most)
    lanes = -(-number // batches)
    fill = np.minimum(np.arange(batches * lanes), number - 1).reshape(batches, lanes)
    out = jax.lax.map(function, {n: v[fill] for n, v in flat.items()})
    return {n: v.reshape(-1, *v.shape[2:])[:number] for n, v in out.items()}


def axes_along(model: Model, extra: int = 0) -> dict[str, int]:
    """The batch axis of each observable along which `converged` may vary; observables without that axis are absent."""
    along = type(model).converges_along
    return {n: 1 + extra + o.dims.index(along) for n, o in model.observables().items() if along in o.dims}


def within_bounds(values: dict[str, Array], model: Model) -> dict[str, Array]:
    """Mark values outside their declared bounds by more than the model's accuracy as not converged.

    A cosine of 1.6 or a negative loss is wrong, however small the residual. If `converged` varies along a dimension
    (time), the path counts as failed from the first such value on.
    """
    values, axes, slack = dict(values), axes_along(model), model.stated_accuracy
    lanes = next(iter(values.values())).shape[:1]
    for name, declared in model.observables().items():
        if name not in values or not (np.isfinite(declared.low) or np.isfinite(declared.high)):
            continue
        v = values[name]
        # NaN passes: it is already recognisable as missing
        good = ~(v < declared.low - slack * (1 + abs(declared.low)))
        good = good & ~(v > declared.high + slack * (1 + abs(declared.high)))
        own = f"{name}_converged" if f"{name}_converged" in values else "converged"
        converged = values.get(own, jnp.ones(lanes, bool))
        if converged.ndim > 1 and name in axes:
            good = jnp.all(good, axis=tuple(i for i in range(1, v.ndim) if i != axes[name]))
            good = jnp.cumprod(good.astype(jnp.int32), axis=1) == 1
        else:
            good = jnp.all(good.reshape(*lanes, -1), axis=1).reshape(*lanes, *(1,) * (converged.ndim - 1))
        values[own] = converged & good
    return values


def masked(
    values: dict[str, Array], axes: Mapping[str, int] | None = None, rank: int = 1
) -> tuple[dict[str, Array], Array, Array, Array | None]:
    """Split off `converged` and `residual`; make the rest NaN, in value and in derivative, where not converged.

    An observable that can fail on its own comes with `NAME_converged`; a point has converged if all of these have.

    `converged` has `rank` axes, lanes first, and one more if it varies along a dimension of the observables (time), whose
    axis in each observable is given by `axes`. Those observables are then masked entry by entry, all others where any entry
    failed. The last returned value is this finer mask, or None.
    """
    values = dict(values)
    own = [name for name in values if name.endswith("_converged")]
    some = next(iter(values.values()))
    converged = values.pop("converged", jnp.ones(some.shape[:1], bool))
    entrywise = converged if converged.ndim > rank else None
    whole = converged if entrywise is None else jnp.all(entrywise, axis=-1)
    for name in own:
        one = values.pop(name)
        whole = whole & one
        entrywise = None if entrywise is None else entrywise & one[..., None]
    residual = values.pop("residual", jnp.zeros(whole.shape))

    def mask(name: str, v: Array) -> Array:
        # A product, not `where`: the derivative of `where` at a masked point would be a plausible zero.
        if entrywise is not None and name in (axes or {}):
            shape = [*entrywise.shape[:-1], *(1,) * (v.ndim - entrywise.ndim + 1)]
            shape[(axes or {})[name]] = entrywise.shape[-1]
            return v * jnp.where(entrywise, 1.0, jnp.nan).reshape(shape).astype(v.dtype)
        factor = jnp.where(whole, 1.0, jnp.nan)
        return v * factor.reshape(factor.shape + (1,) * (v.ndim - factor.ndim)).astype(v.dtype)

    return {n: mask(n, v) for n, v in values.items()}, whole, residual, entrywise


def simulate_batch(
    model: Model,
    fields: Mapping[str, Any],
    keys: PRNGKeyArray,
    size: int,
    *,
    padded: Mapping[str, int] | None = None,
    dtype: str | None = None,
    program: Any = None,
) -> dict[str, Array]:
    """Simulate one lane per key, all of one size and padding, in one compiled program.

    `fields` gives the values that differ between lanes, along a leading axis (all others are the model's own); `padded`
    gives the length to which the arrays of each counting control are padded; `program` runs in the place of our own
    (it was compiled from it with other options).
    """
    lanes = keys.shape[0]
    each = {n: np.asarray(v, float) for n, v in fields.items()}
    counts = {}
    for name, declaration in model.fields_of("control").items():
        if declaration.counts:
            ratios = each.get(name, np.full(lanes, float(getattr(model, name))))
            counts[name] = np.maximum(1, np.rint(ratios * size)).astype(np.int32)
            each[name] = counts[name] / size
    if padded is None:
        padded = {n: bucket(int(c.max())) for n, c in counts.items()}
    lengths = tuple(sorted(padded.items()))
    name = dtype or type(model).simulation_dtype
    if name not in ("float32", "float64"):
        raise InvalidValue(f"dtype = {name!r} is not one of 'float32', 'float64': the precision of a simulation.")
    if type(model).runs == "host":
        rows: list[Any] = [None] * lanes
        for alike in _equal_lanes(each, lanes, type(model).together):
            first = alike[0]
            values = {n: jnp.asarray(v[first]) for n, v in each.items()}
            count = {n: Count(counts[n][first], p) for n, p in lengths}
            with jax.default_matmul_precision(PRECISION):
                found = model.with_values(values).experiments(keys[np.array(alike)], size, count, jnp.dtype(name))
            for lane, one in zip(alike, found, strict=True):
                rows[lane] = _checked_alone(model, {n: jnp.asarray(v) for n, v in one.items()})
        return {n: jnp.asarray(np.stack([np.asarray(row[n]) for row in rows])) for n in rows[0]}
    return (program or _simulate)(model, each, keys, counts, size, lengths, name)


PRECISION = "highest"
"""Of products in a simulation: by default a GPU would round factors in float32 to eleven bits."""


def _equal_lanes(fields: Mapping[str, np.ndarray], lanes: int, most: int) -> list[list[int]]:
    """The lanes in groups of equal fields, at most `most` in each."""
    groups: dict[Any, list[int]] = {}
    for lane in range(lanes):
        groups.setdefault(tuple(v[lane].tobytes() for v in fields.values()), []).append(lane)
    return [group[i : i + most] for group in groups.values() for i in range(0, len(group), most)]


def _lane(model, fields, key, actual, size, padded, dtype):
    counts = {n: Count(actual[n], p) for n, p in padded}
    with jax.default_matmul_precision(PRECISION):
        values = model.with_values(fields).experiment(key, size, counts, jnp.dtype(dtype))
    return _checked(model, values)


def _checked(model, values):
    """The observables of one realisation with their convergence; raises an error for any that is not declared."""
    declared = model.observables()
    extra = [n for n in values if n not in declared and n not in ("converged", "residual")]
    if extra:
        raise SolvableError(f"{model.id} simulates {extra[0]!r}, which is not a declared observable.")
    values = {n: jnp.asarray(v, float)[None] for n, v in values.items() if n != "converged"} | {
        "converged": jnp.asarray(values.get("converged", True), bool)[None]
    }
    out, converged, residual, _ = masked(values, axes_along(model))
    return {n: v[0] for n, v in out.items()} | {"converged": converged[0], "residual": residual[0]}


_checked_alone = eqx.filter_jit(_checked)  # one program instead of a few for every observable


@eqx.filter_jit
def _simulate(model, fields, keys, actual, size: int, padded: tuple[tuple[str, int], ...], dtype: str):
    def lane(cell):
        values, key, count = cell
        return _lane(model, values, key, count, size, padded, dtype)

    cells = (fields, keys, actual)
    return jax.vmap(lane)(cells) if type(model).runs == "vmap" else jax.lax.map(lane, cells)


def bucket(count: int) -> int:
    """The padded length for a count: the next of 1, 2, 3, 4, 6, 8, 12, 16, ...

    >>> [bucket(n) for n in (1, 5, 6, 100, 1000)]
    [1, 6, 6, 128, 1024]
    """
    power = 1 << max(0, (count - 1).bit_length())
    return 3 * power // 4 if power >= 4 and count <= 3 * power // 4 else power
