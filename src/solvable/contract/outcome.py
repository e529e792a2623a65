"""The result of a theory or a simulation."""

from __future__ import annotations

from collections.abc import Iterator

import equinox as eqx
import jax
import numpy as np
from jax.core import Tracer
from jaxtyping import Array

from ..errors import UnknownName, nearest


class Outcome(eqx.Module):
    """Named observables of a theory or a simulation, with their status; read as a mapping or by attribute.

    `converged` is true at the points where every value converged. If a theory reports convergence along a dimension (for
    example along time, for a flow that ends early), `converged_along` has that dimension after those of the points, and
    the values that did converge are kept.
    """

    values: dict[str, Array]
    converged: Array
    residual: Array
    source: str = eqx.field(static=True)
    dims: tuple[tuple[str, tuple[str, ...]], ...] = eqx.field(static=True)
    converged_along: Array | None = None
    along: str = eqx.field(static=True, default="")

    def __getitem__(self, name: str) -> Array:
        try:
            return self.values[name]
        except KeyError:
            raise UnknownName(f"no observable {name!r} here; {nearest(name, list(self.values))}") from None

    def __getattr__(self, name: str) -> Array:
        if name.startswith("_") or name == "values":
            raise AttributeError(name)
        try:
            return self.values[name]
        except KeyError:
            raise AttributeError(name) from None

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def __iter__(self) -> Iterator[str]:
        return iter(self.values)

    def keys(self):
        return self.values.keys()

    @property
    def status(self) -> str | np.ndarray:
        """`"converged"`, `"not converged"`, or the number of values that converged; one string per point."""
        done = np.asarray(self.converged)
        words = np.where(done, "converged", "not converged")
        if self.converged_along is not None and not done.all():
            entrywise = np.asarray(self.converged_along)
            some = np.char.add(
                np.char.add("converged at ", entrywise.sum(-1).astype(str)),
                f" of {entrywise.shape[-1]} values of {self.along}",
            )
            words = np.where(done | ~entrywise.any(-1), words, some)
        return str(words) if words.ndim == 0 else words

    def __repr__(self) -> str:
        if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(self)):
            return f"<{self.source} outcome, traced: {', '.join(self.values)}>"
        width = max((len(n) for n in self.values), default=0)
        lines = [f"{n:<{width}}  {brief(np.asarray(v))}" for n, v in self.values.items()]
        done = np.asarray(self.converged)
        what = self.status if done.ndim == 0 else f"{int(done.sum())} of {done.size} points converged"
        worst = np.asarray(self.residual)
        residual = f", residual {np.nanmax(worst):.1e}" if worst.size and np.isfinite(worst).any() else ""
        return "\n".join([*lines, f"{self.source}: {what}{residual}"])


def brief(value: np.ndarray) -> str:
    """Numbers as text: eight digits of one, the first and last of many.

    >>> brief(np.array(0.5)), brief(np.arange(3))
    ('0.5', '[0 1 2]')
    """
    if value.ndim == 0:
        return f"{float(value):.8g}"
    with np.printoptions(precision=6, threshold=8, edgeitems=3):
        return str(value).replace("\n", " ")
