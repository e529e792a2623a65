"""Compute one block from its specification: the only module of the lab that uses JAX."""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxprs_in_params

from .._version import __version__
from ..contract.compiled import Count
from ..contract.compiled import _simulate as simulation_program
from ..contract.compiled import _theory as theory_program
from ..contract.graphs import Graph
from ..contract.values import key_words
from ..errors import InvalidValue, SolvableError
from ..model import Model, simulate_batch
from .memory import budget, lanes_that_fit, needed
from .planning import columns_of, spread

LARGE = 1 << 28  # bytes below which a block is not examined
IMMENSE = 1 << 50  # bytes of an array that is refused uncompiled: XLA ends the process where their number overflows


def needed_memory(model: Model, block: Mapping[str, Any]) -> int | None:
    """Memory of the block's compiled program in bytes, as reported by XLA; None if it is not known beforehand.

    The compilation is not wasted, because the block then runs the same program. Of an immense program, which is not
    compiled, it is the memory of the largest array.
    """
    if block["prepare"] or (block["kind"] == "simulation" and type(model).runs == "host"):
        return None
    if block["kind"] == "theory":
        controls = {n: jnp.zeros(block["lanes"]) for n in model.fields_of("control")}
        arguments = (model.with_values(controls), type(model).numerics.updated(block["numerics"]))
        return needed(theory_program.lower(*arguments).compile())
    if (least := immense(model, block)) is not None:
        return least
    return needed(lowered_simulation(model, block).compile())


def immense(model: Model, block: Mapping[str, Any]) -> int | None:
    """Bytes of the largest array of a simulated block if they are too many to be compiled."""
    if _rough(block) <= IMMENSE:
        return None
    least = 4 * block["lanes"] * _largest_array(model, block)
    return least if least > IMMENSE else None


def lowered_simulation(model: Model, block: Mapping[str, Any]) -> Any:
    """The program of a simulated block, traced but not compiled."""
    lanes = block["lanes"]
    counting = [n for n, declaration in model.fields_of("control").items() if declaration.counts]
    lengths = tuple(sorted(zip(counting, block["padded"], strict=True)))
    keys = jax.random.wrap_key_data(jnp.zeros((lanes, 2), jnp.uint32), impl="threefry2x32")
    fields = {n: np.zeros(lanes) for n in model.fields_of("control")}
    counts = {n: np.ones(lanes, np.int32) for n in counting}
    return simulation_program.lower(model, fields, keys, counts, block["size"], lengths, block["dtype"])


def compute_block(model: Model, block: Mapping[str, Any], program: Any = None) -> dict[str, np.ndarray]:
    """The results of a block, one row per cell, computed in batches of `lanes` cells.

    `model` is the block's variant, with arbitrary controls. A simulated block may be computed by another `program`, compiled
    from `lowered_simulation` of this block with other options.
    """
    block = fitting(model, block)
    names = list(model.fields_of("control"))
    number, lanes = block["cells"], block["lanes"]
    controls, sizes, seeds = columns_of(block)
    columns = {n: np.array([float.fromhex(v) for v in spread(c, number)]) for n, c in zip(names, controls, strict=True)}
    block = {**block, "seeds": spread(seeds, number), "sizes": spread(sizes, number)}
    one_batch = _theories if block["kind"] == "theory" else partial(_simulations, program=program)
    batches = []
    for start in range(0, number, lanes):
        batch = slice(start, min(start + lanes, number))
        own = {n: c[batch] for n, c in columns.items()}
        some = {**block, "seeds": block["seeds"][batch], "sizes": block["sizes"][batch]}
        fill = np.minimum(
            np.arange(lanes), batch.stop - start - 1
        )  # repeat the last cell, so that all batches have one shape
        out = one_batch(model, own, some, fill)
        batches.append({name: np.asarray(value)[: batch.stop - start] for name, value in out.items()})
    return {name: np.concatenate([out[name] for out in batches]) for name in batches[0]}


def fitting(model: Model, block: Mapping[str, Any]) -> Mapping[str, Any]:
    """The block, with as many lanes as fit into memory (which changes rounding only); raises `InvalidValue` if none does.

    Only simulations that may be large are examined: matrices grow with the square of the size, tensors with its cube.
    """
    if block["kind"] != "simulation" or block["prepare"] or type(model).runs == "host":
        return block
    size, rough = block["size"], _rough(block)
    if rough <= LARGE or (most := budget()) is None or rough <= most:
        return block
    if 8 * block["lanes"] * _largest_array(model, block) <= most / 8:
        return block
    while (needs := needed_memory(model, block)) is not None and needs > most:
        if block["lanes"] == 1:
            raise InvalidValue(
                f"size = {size} needs about {needs / 1e9:.3g} GB of memory for one realisation of {model.id}, but only "
                f"{most / 1e9:.3g} GB are free: use a smaller size."
            )
        block = {**block, "lanes": min(block["lanes"] - 1, lanes_that_fit(block["lanes"], needs, most) or 1)}
    return block


def _rough(block: Mapping[str, Any]) -> int:
    """Bytes of the largest matrix or tensor that a simulation may have."""
    size, longest = block["size"], max([block["size"], *block["padded"]])
    return 8 * block["lanes"] * max(size * longest, size**3)


def _largest_array(model: Model, block: Mapping[str, Any]) -> int:
    """Entries of the largest array in one realisation, found by tracing, which allocates nothing."""
    counting = [n for n, declaration in model.fields_of("control").items() if declaration.counts]
    counts = {n: Count(jnp.asarray(1, jnp.int32), p) for n, p in zip(counting, block["padded"], strict=True)}
    key, dtype = jax.random.key(0, impl="threefry2x32"), jnp.dtype(block["dtype"])
    traced = jax.make_jaxpr(lambda k: model.experiment(k, block["size"], counts, dtype))(key)

    def largest(jaxpr: Any) -> int:
        found = 0
        for equation in jaxpr.eqns:
            found = max([found, *(math.prod(v.aval.shape) for v in equation.outvars if hasattr(v.aval, "shape"))])
            for inner in jaxprs_in_params(equation.params):
                found = max(found, largest(inner))
        return found

    return largest(traced.jaxpr)


def _keys(model: Model, columns: Mapping[str, np.ndarray], size: int, seeds: Any) -> Any:
    """The random keys of the cells, equal to those of `Model.key`."""
    words, common = [], model.specification()
    for lane, seed in enumerate(seeds):
        spec = common | {n: float(v[lane]).hex() for n, v in columns.items()}
        words.append(key_words(model.keyed(spec), size, seed))
    return jax.random.wrap_key_data(jnp.asarray(np.array(words)), impl="threefry2x32")


def _prepared(
    model: Model, columns: Mapping[str, np.ndarray], size: int, keys: Any
) -> tuple[Model, dict[str, np.ndarray]]:
    """A prepared model and the fields drawn by `prepare`, stacked over cells."""
    drawn: dict[str, list[np.ndarray]] = {}
    filled = model
    for lane in range(keys.shape[0]):
        cell = model.with_values({n: jnp.asarray(v[lane]) for n, v in columns.items()})
        filled = cell.prepared(keys[lane], size)
        for name in model.fields_of("input", "data"):
            value = getattr(filled, name)
            if isinstance(value, Graph):
                if value is not getattr(model, name):
                    raise SolvableError(
                        f"{model.id} draws a graph in `prepare`: draw it in `experiment` or pass it in."
                    )
            elif value is not None:
                drawn.setdefault(name, []).append(np.asarray(value))
    return filled, {name: np.stack(values) for name, values in drawn.items()}


def _theories(model: Model, columns: dict[str, np.ndarray], block: Mapping[str, Any], fill: np.ndarray):
    if block["prepare"]:
        keys = _keys(model, columns, block["size"], block["seeds"])
        model, drawn = _prepared(model, columns, block["size"], keys)
    else:
        drawn = {}
    real = {
        n: np.array([v if s is None else model.realised_ratio(n, v, s) for v, s in zip(c, block["sizes"], strict=True)])
        for n, c in columns.items()
    }
    if drawn:  # every cell has its own inputs: run one program cell by cell
        rows = []
        for lane in range(len(block["seeds"])):
            values = {n: jnp.asarray(v[lane]) for n, v in {**real, **drawn}.items()}
            rows.append(model.with_values(values).theory(block["numerics"]))
        out = {n: np.stack([np.asarray(r[n]) for r in rows]) for n in rows[0]}
        return out | {n: np.stack([np.asarray(getattr(r, n)) for r in rows]) for n in ("converged", "residual")}
    outcome = model.with_values({n: jnp.asarray(v[fill]) for n, v in real.items()}).theory(block["numerics"])
    out = dict(outcome.values) | {"converged": outcome.converged, "residual": outcome.residual}
    # Without controls there is a single point, whatever the number of cells.
    return out if columns else {n: np.broadcast_to(v, (len(fill), *np.shape(v))) for n, v in out.items()}


def _simulations(
    model: Model, columns: dict[str, np.ndarray], block: Mapping[str, Any], fill: np.ndarray, program: Any = None
):
    size = block["size"]
    keys = _keys(model, columns, size, block["seeds"])
    model, drawn = _prepared(model, columns, size, keys) if block["prepare"] else (model, {})
    fields = {**columns, **drawn}
    counting = [n for n, declaration in model.fields_of("control").items() if declaration.counts]
    return simulate_batch(
        model,
        {n: v[fill] for n, v in fields.items()},
        keys[fill],
        size,
        padded=dict(zip(counting, block["padded"], strict=True)),
        dtype=block["dtype"],
        program=program,
    )


def provenance() -> dict[str, str]:
    """Versions, device and machine with which results are computed."""
    device = jax.devices()[0]
    return {
        "version": __version__,
        "jax": jax.__version__,
        "python": platform.python_version(),
        "device": f"{device.platform} {device.device_kind}",
        "machine": platform.machine(),
    }
