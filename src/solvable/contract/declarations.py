"""What a model declares: controls, choices, inputs, data and graphs, dimensions, observables, references.

The first five make dataclass fields. A declaration stays readable (`Declaration`, `Dimension`, `Observable`), and the
command line, the page, the plots, the documents and the property tests are all made from it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from ..errors import InvalidValue
from .graphs import Graph

Kind = Literal["control", "choice", "input", "data"]
DataType = Literal["float", "int", "bool", "graph"]


@dataclasses.dataclass(frozen=True)
class Declaration:
    """What a model says about one of its fields."""

    kind: Kind
    meaning: str
    symbol: str = ""
    default: Any = None
    low: float = -math.inf
    high: float = math.inf
    low_open: bool = False
    high_open: bool = False
    scale: Literal["linear", "log"] = "linear"
    typical: tuple[float, float] | None = None
    counts: bool = False
    options: tuple[str, ...] | None = None
    dims: tuple[str, ...] = ()
    increasing: bool = False
    type: DataType = "float"

    @property
    def span(self) -> tuple[float, float]:
        """A finite interval to draw sliders and property tests from: `typical`, else the declared range."""
        low, high = self.typical or (self.low, self.high)
        if not (math.isfinite(low) and math.isfinite(high)):
            raise InvalidValue(f"an unbounded control needs `typical`; the range is {self.range}.")
        return low, high

    @property
    def range(self) -> str:
        """The allowed range, as printed in messages and tables."""
        if self.options is not None:
            return ", ".join(repr(o) for o in self.options)
        open_left = self.low_open or math.isinf(self.low)
        open_right = self.high_open or math.isinf(self.high)
        show = {math.inf: "∞", -math.inf: "-∞"}
        low, high = (show.get(x, f"{x:g}") for x in (self.low, self.high))
        return f"{'(' if open_left else '['}{low}, {high}{')' if open_right else ']'}"

    def inside(self, value: np.ndarray) -> np.ndarray:
        """Elementwise: is the value allowed? NaN is not; infinity only where the range is closed at it (never)."""
        above = value > self.low if self.low_open else value >= self.low
        below = value < self.high if self.high_open else value <= self.high
        return above & below & np.isfinite(value)


def control(
    default: float,
    *,
    meaning: str,
    symbol: str = "",
    low: float = -math.inf,
    high: float = math.inf,
    low_open: bool = False,
    high_open: bool = False,
    scale: Literal["linear", "log"] = "linear",
    typical: tuple[float, float] | None = None,
    counts: bool = False,
) -> Any:
    """A number that is swept freely: any array broadcasts, everything is differentiable.

    **Arguments:**
    - `low`, `high`, `low_open`, `high_open`: the range in which the theory holds.
    - `typical`: the finite interval shown on sliders and searched by tests, where the range itself is unbounded.
    - `counts`: in a simulation of size `d` the control sets a whole number of things, `round(control * d)`, and the
        theory is evaluated at the ratio that was realised.
    """
    declaration = Declaration(
        "control", meaning, symbol, default, low, high, low_open, high_open, scale, typical, counts
    )
    return eqx.field(default=default, kw_only=True, metadata={"solvable": declaration})


def choice(
    default: str | int,
    *,
    meaning: str,
    options: Sequence[str] | None = None,
    symbol: str = "",
    low: float = 1,
    high: float = 10_000,
) -> Any:
    """A static alternative: one of `options`, or (without options) a whole number between `low` and `high`.

    Each value compiles its own program; a study sweeps it block by block.
    """
    named = tuple(options) if options is not None else None
    declaration = Declaration("choice", meaning, symbol, default, low=low, high=high, options=named)
    return eqx.field(default=default, kw_only=True, static=True, metadata={"solvable": declaration})


def input(
    default: Any = None,
    *,
    dims: Sequence[str],
    meaning: str,
    symbol: str = "",
    low: float = -math.inf,
    high: float = math.inf,
    increasing: bool = False,
) -> Any:
    """An array with named dimensions: a schedule, initial overlaps, a spectrum. Differentiable; swept as named arms.

    `default` is an array, or a function of the model that makes one (so that it may depend on choices).
    A dimension named like a whole-number choice must have that size. With `increasing` (times of measurement), it is
    at least two numbers, each larger than the one before.
    """
    declaration = Declaration("input", meaning, symbol, default, low, high, dims=tuple(dims), increasing=increasing)
    return eqx.field(default=None, kw_only=True, metadata={"solvable": declaration})


def data(
    default: Any = None,
    *,
    dims: Sequence[str],
    meaning: str,
    symbol: str = "",
    type: Literal["float", "int", "bool"] = "float",
    low: float = -math.inf,
    high: float = math.inf,
) -> Any:
    """An array that is the user's or was drawn: a covariance, sequences, a mask. Never swept; may be absent.

    `type` is what it is made of. Whole numbers and truth values are validated, hashed, stored and passed to JAX as such
    (`int32`, `bool`); whole numbers in a float array are taken, anything else is refused. Sequences over an alphabet of
    q letters are `type="int", low=0, high=q - 1`.
    """
    declaration = Declaration("data", meaning, symbol, default, low, high, dims=tuple(dims), type=type)
    return eqx.field(default=None, kw_only=True, metadata={"solvable": declaration})


def graph(default: Any = None, *, meaning: str, symbol: str = "", dims: Sequence[str] = ("node", "edge")) -> Any:
    """A graph that is the user's or was drawn: indices and values, see `Graph` (`dims` names its nodes and edges).

    Anything that `Graph.of` understands is taken: a `Graph`, a list of neighbour lists, a symmetric matrix, a SciPy sparse
    matrix, or `{"edges": [[i, j], ...], "values": [...], "nodes": n}`.
    """
    declaration = Declaration("data", meaning, symbol, default, dims=tuple(dims), type="graph")
    return eqx.field(default=None, kw_only=True, metadata={"solvable": declaration})


@dataclasses.dataclass(frozen=True)
class Dimension:
    """An axis of observables: what it is, and how it is drawn."""

    name: str
    meaning: str = ""
    symbol: str = ""
    scale: Literal["linear", "log"] = "linear"
    kind: Literal["time", "pair", "site", "mode", "draw", "label"] = "label"

    @property
    def is_axis(self) -> bool:
        """Whether curves are drawn along it (else it tells curves apart)."""
        return self.kind in ("time", "mode", "site")


def dimension(
    name: str,
    meaning: str,
    *,
    symbol: str = "",
    scale: Literal["linear", "log"] = "linear",
    kind: Literal["time", "pair", "site", "mode", "label"] = "label",
) -> Dimension:
    """Declare a dimension of observables; `Model.coordinates` gives its values.

    **Arguments:**
    - `scale`: of the axis that is drawn along it.
    - `kind`:
        - `time`: something evolves along it;
        - `pair`: the earlier one, t′, of a pair of times: C(t, t′) is drawn against t at several t′, or as a map;
        - `site`: positions, layers, orders; two of them make a map;
        - `mode`: eigenvalues, wave numbers: a spectrum is drawn along it;
        - `label`: what tells curves apart (groups, heads, tasks).
    """
    return Dimension(name, meaning, symbol, scale, kind)


DRAW = Dimension("draw", "independent draws from a random limit", kind="draw")
"""The dimension along which the theory of a random observable lays its draws."""
QUANTILE = Dimension("quantile", "level of a quantile of a random limit", symbol="q")
"""The dimension along which the page shows a random observable."""


@dataclasses.dataclass(frozen=True)
class Observable:
    """What a model predicts and measures, declared once."""

    name: str
    meaning: str
    symbol: str = ""
    dims: tuple[str, ...] = ()
    status: Literal["exact", "asymptotic", "approximate"] = "asymptotic"
    power: float = 1.0
    low: float = -math.inf
    high: float = math.inf
    simulated: bool = True
    predicted: bool = True
    when: tuple[tuple[str, tuple[Any, ...]], ...] = ()
    fraction_of: str = ""
    random: bool = False

    @property
    def shown_dims(self) -> tuple[str, ...]:
        """The dimensions along which the page shows it: its own, and those of its quantiles where the limit is random."""
        return (*self.dims, QUANTILE.name) if self.random else self.dims

    @property
    def theory_dims(self) -> tuple[str, ...]:
        """The dimensions of its prediction: its own, and those of its draws where the limit is random."""
        return (*self.dims, DRAW.name) if self.random else self.dims


def observable(
    name: str,
    meaning: str,
    *,
    symbol: str = "",
    dims: Sequence[str] = (),
    status: Literal["exact", "asymptotic", "approximate"] = "asymptotic",
    power: float = 1.0,
    low: float = -math.inf,
    high: float = math.inf,
    simulated: bool = True,
    predicted: bool = True,
    when: dict[str, Any] | None = None,
    fraction_of: str = "",
    random: bool = False,
) -> Observable:
    """Declare an observable.

    **Arguments:**
    - `status`: `exact` (at every size), `asymptotic` (exact as the size grows), `approximate` (known to be off somewhere).
    - `power`: the finite-size correction falls as `size ** -power`.
    - `low`, `high`: physical bounds, checked by the contract test over the whole range of every control.
    - `simulated`, `predicted`: whether the simulation, the theory, gives it.
    - `fraction_of`: what is counted, for a fraction of a finite number of things: a counting control, or `"size"`. Its
        error bar is never below that of counting, also when every seed counted the same.
    - `when`: the choices for which it exists, e.g. `{"teacher": "sign"}` or `{"loss": ("hinge", "logistic")}`.
    - `random`: it stays random as the size grows (a stochastic differential equation). The theory gives independent draws
        along one more, last, dimension; they are compared with the realisations' by quantiles and a two-sample test.
    """
    conditions = tuple((k, v if isinstance(v, tuple) else (v,)) for k, v in (when or {}).items())
    return Observable(
        name,
        meaning,
        symbol,
        tuple(dims),
        status,
        power,
        low,
        high,
        simulated,
        predicted,
        conditions,
        fraction_of,
        random,
    )


@dataclasses.dataclass(frozen=True)
class Reference:
    """A paper: authors, title, year, where, and an arXiv id or DOI if it has one."""

    key: str
    authors: str
    title: str
    year: int
    venue: str = ""
    arxiv: str = ""
    doi: str = ""

    def bibtex(self) -> str:
        """The entry to paste into a bibliography.

        >>> print(Reference("gardner1989", "E. Gardner and B. Derrida", "Three unfinished works", 1989).bibtex())
        @article{gardner1989,
          author = {E. Gardner and B. Derrida},
          title = {Three unfinished works},
          year = {1989},
        }
        """
        # In prose authors are separated by commas, in BibTeX by "and".
        authors = " and ".join(a.strip() for a in self.authors.replace(" and ", ", ").split(", "))
        entries = {"author": authors, "title": self.title, "year": str(self.year)}
        if self.venue:
            entries["journal"] = self.venue
        if self.arxiv:
            entries |= {"eprint": self.arxiv, "archiveprefix": "arXiv"}
        if self.doi:
            entries["doi"] = self.doi
        body = "".join(f"  {k} = {{{v}}},\n" for k, v in entries.items())
        return f"@article{{{self.key},\n{body}}}"

    def __str__(self) -> str:
        where = f", {self.venue}" if self.venue else ""
        arxiv = f", arXiv:{self.arxiv}" if self.arxiv else ""
        return f"{self.authors} ({self.year}). {self.title}{where}{arxiv}."


# --- conversion and checks, one field at a time -----------------------------------------------------------------------


def checked_number(name: str, declaration: Declaration, value: Any) -> jax.Array:
    """A control's value as a float64 array, or one sentence about what is wrong with it."""
    if isinstance(value, Tracer):
        return value if value.dtype == jnp.float64 else value.astype(float)
    array = _as_floats(name, declaration, value)
    inside = declaration.inside(array)
    if not inside.all():
        where = np.unravel_index(int(np.argmin(inside)), array.shape)
        place = f"[{', '.join(str(int(i)) for i in where)}]" if array.ndim else ""
        raise InvalidValue(
            f"{name}{place} = {float(array[where]):g} is outside its range {declaration.range}: {declaration.meaning}."
        )
    return jnp.asarray(array, dtype=float)


def checked_choice(name: str, declaration: Declaration, value: Any) -> str | int:
    """A choice's value as a plain string or int, or one sentence about what is wrong with it."""
    if declaration.options is not None:
        if not isinstance(value, str) or value not in declaration.options:
            raise InvalidValue(f"{name} = {value!r} is not one of {declaration.range}: {declaration.meaning}.")
        return str(value)
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not whole or not declaration.low <= value <= declaration.high:
        raise InvalidValue(f"{name} = {value!r} is not a whole number in {declaration.range}: {declaration.meaning}.")
    return int(value)


def checked_array(name: str, declaration: Declaration, value: Any, sizes: dict[str, int]) -> Any:
    """An input's or data field's value in its own type, its shape checked against the known sizes of dimensions (and
    entered into them)."""
    if declaration.type == "graph":
        return _checked_graph(name, declaration, value, sizes)
    array = value if isinstance(value, Tracer) else _as_typed(name, declaration, value)
    shape = "×".join(declaration.dims)
    if array.ndim != len(declaration.dims):
        raise InvalidValue(
            f"{name} has {array.ndim} dimensions where {len(declaration.dims)} ({shape}) are meant: {declaration.meaning}."
        )
    for dim, size in zip(declaration.dims, array.shape, strict=True):
        if sizes.setdefault(dim, size) != size:
            raise InvalidValue(
                f"{name} has {size} entries along {dim!r} where {sizes[dim]} are meant: {declaration.meaning}."
            )
    if isinstance(array, Tracer):
        return array
    if not declaration.inside(array).all():
        raise InvalidValue(
            f"{name} has an entry that is not finite or not in {declaration.range}: {declaration.meaning}."
        )
    if declaration.increasing and (array.size < 2 or np.any(np.diff(array) <= 0)):
        raise InvalidValue(f"{name} must be at least two increasing numbers: the first is the start.")
    return jnp.asarray(array, dtype=JAX_TYPES[declaration.type])


JAX_TYPES: dict[str, Any] = {"float": float, "int": jnp.int32, "bool": bool}


def _as_typed(name: str, declaration: Declaration, value: Any) -> np.ndarray:
    """An array of the declared type; whole numbers and truth values are refused where they would be rounded."""
    if declaration.type == "bool":
        array = np.asarray(value)
        if array.dtype.kind == "b" or (array.dtype.kind in "iuf" and np.isin(array, (0, 1)).all()):
            return array.astype(bool)
        raise InvalidValue(
            f"{name} = {_short(value)} is not an array of truth values (0 and 1): {declaration.meaning}."
        )
    array = _as_floats(name, declaration, value)
    if declaration.type == "int" and not (np.mod(array, 1) == 0).all():
        raise InvalidValue(f"{name} has an entry that is not a whole number: {declaration.meaning}.")
    return array


def _checked_graph(name: str, declaration: Declaration, value: Any, sizes: dict[str, int]) -> Graph:
    try:
        found = Graph.of(value)
    except InvalidValue as problem:
        raise InvalidValue(f"{name} {problem}") from None
    for dim, size in zip(declaration.dims, (found.nodes, found.indices.shape[0]), strict=False):
        if sizes.setdefault(dim, size) != size:
            raise InvalidValue(f"{name} has {size} of {dim!r} where {sizes[dim]} are meant: {declaration.meaning}.")
    return found


def _as_floats(name: str, declaration: Declaration, value: Any) -> np.ndarray:
    try:
        array = np.asarray(value)
        if array.dtype.kind not in "iuf":
            raise TypeError
        return array.astype(float)
    except (TypeError, ValueError):
        raise InvalidValue(
            f"{name} = {_short(value)} is not a number or an array of numbers in {declaration.range}: {declaration.meaning}."
        ) from None


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def resolve_default(declaration: Declaration, model: Any) -> Any:
    """The default of an input: an array as it is, or made from the model's choices."""
    make: Callable[[Any], Any] | Any = declaration.default
    return make(model) if callable(make) else make
