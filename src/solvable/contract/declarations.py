"""Declarations of a model: controls, choices, inputs, data, graphs, dimensions, observables, references.

The first five declare dataclass fields. The command line, the page, the plots, the documentation and the property tests
are all generated from the declarations (`Declaration`, `Dimension`, `Observable`).
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
from .functions import TRUSTED, function_named, is_text_of_a_function, name_of
from .graphs import Graph

Kind = Literal["control", "choice", "input", "data"]
DataType = Literal["float", "int", "bool", "graph"]


Conditions = tuple[tuple[str, tuple[Any, ...]], ...]
"""Names of choices, each with the values for which something exists or matters."""


def _conditions(when: dict[str, Any] | None) -> Conditions:
    return tuple((k, v if isinstance(v, tuple) else (v,)) for k, v in (when or {}).items())


@dataclasses.dataclass(frozen=True)
class Declaration:
    """The declaration of one field of a model."""

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
    when: Conditions = ()
    own: str = ""

    @property
    def span(self) -> tuple[float, float]:
        """The finite interval for sliders and property tests: `typical`, or else the declared range."""
        low, high = self.typical or (self.low, self.high)
        if not (math.isfinite(low) and math.isfinite(high)):
            raise InvalidValue(f"a control with the unbounded range {self.range} needs `typical`.")
        return low, high

    @property
    def range(self) -> str:
        """The allowed range, as printed in messages and tables."""
        if self.options is not None:
            own = [f"a function {self.own}"] if self.own else []
            return ", ".join([*(repr(o) for o in self.options), *own])
        open_left = self.low_open or math.isinf(self.low)
        open_right = self.high_open or math.isinf(self.high)
        show = {math.inf: "∞", -math.inf: "-∞"}
        low, high = (show.get(x, f"{x:g}") for x in (self.low, self.high))
        return f"{'(' if open_left else '['}{low}, {high}{')' if open_right else ']'}"

    def inside(self, value: np.ndarray) -> np.ndarray:
        """Elementwise test whether the value is allowed; NaN and infinity never are."""
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
    when: dict[str, Any] | None = None,
) -> Any:
    """Declare a number that can be swept: arrays broadcast, and everything is differentiable with respect to it.

    **Arguments:**
    - `low`, `high`, `low_open`, `high_open`: the range in which the theory holds.
    - `typical`: the finite interval shown on sliders and searched by tests; required if the range is unbounded.
    - `counts`: in a simulation of size `d` the control sets a whole number of items, `round(control * d)`, and the
        theory is evaluated at the realised ratio.
    - `when`: the choices for which it matters, e.g. `{"covariance": ("spiked", "localised")}`; elsewhere it changes
        nothing, and the page shows it greyed.
    """
    declaration = Declaration(
        "control",
        meaning,
        symbol,
        default,
        low,
        high,
        low_open,
        high_open,
        scale,
        typical,
        counts,
        when=_conditions(when),
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
    when: dict[str, Any] | None = None,
    own: str = "",
) -> Any:
    """Declare a static field: one of `options`, or (without options) a whole number between `low` and `high`.

    Each value compiles its own program; a study sweeps it block by block. `when`: as of `control`. With `own`, the
    signature of a function in words, a function is allowed beside the options (`contract.functions`): the field then holds
    its name, `module:name`.
    """
    named = tuple(options) if options is not None else None
    declaration = Declaration(
        "choice", meaning, symbol, default, low=low, high=high, options=named, when=_conditions(when), own=own
    )
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
    when: dict[str, Any] | None = None,
) -> Any:
    """Declare an array with named dimensions: a schedule, initial overlaps, a spectrum. Differentiable; swept as arms.

    `default` is an array, or a function of the model that returns one (so that it may depend on choices).
    A dimension with the name of a whole-number choice must have that size. With `increasing` (times of measurement), the
    array must have at least two strictly increasing entries. `when`: as of `control`.
    """
    declaration = Declaration(
        "input", meaning, symbol, default, low, high, dims=tuple(dims), increasing=increasing, when=_conditions(when)
    )
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
    when: dict[str, Any] | None = None,
) -> Any:
    """Declare an array supplied by the user or drawn: a covariance, sequences, a mask. Never swept; may be absent.

    `type` is the element type. Integers and booleans are validated, hashed, stored and passed to JAX as `int32` and
    `bool`; whole numbers in a float array are accepted, other floats raise `InvalidValue`. Sequences over an alphabet
    of q letters are `type="int", low=0, high=q - 1`. `when`: as of `control`.
    """
    declaration = Declaration(
        "data", meaning, symbol, default, low, high, dims=tuple(dims), type=type, when=_conditions(when)
    )
    return eqx.field(default=None, kw_only=True, metadata={"solvable": declaration})


def graph(default: Any = None, *, meaning: str, symbol: str = "", dims: Sequence[str] = ("node", "edge")) -> Any:
    """Declare a graph supplied by the user or drawn; `dims` names its nodes and edges.

    The value may be anything that `Graph.of` accepts: a `Graph`, a list of neighbour lists, a symmetric matrix, a SciPy
    sparse matrix, or `{"edges": [[i, j], ...], "values": [...], "nodes": n}`.
    """
    declaration = Declaration("data", meaning, symbol, default, dims=tuple(dims), type="graph")
    return eqx.field(default=None, kw_only=True, metadata={"solvable": declaration})


@dataclasses.dataclass(frozen=True)
class Dimension:
    """An axis of observables, and how it is drawn."""

    name: str
    meaning: str = ""
    symbol: str = ""
    scale: Literal["linear", "log"] = "linear"
    kind: Literal["time", "pair", "site", "mode", "draw", "label"] = "label"

    @property
    def is_axis(self) -> bool:
        """Whether curves are drawn along it; otherwise it distinguishes curves."""
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
    - `scale`: the scale of the plot axis.
    - `kind`:
        - `time`: something evolves along it;
        - `pair`: the earlier time t′ of a pair of times; C(t, t′) is drawn against t at several t′, or as a map;
        - `site`: positions, layers, orders; two of them make a map;
        - `mode`: eigenvalues, wave numbers; a spectrum is drawn along it;
        - `label`: distinguishes curves (groups, heads, tasks).
    """
    return Dimension(name, meaning, symbol, scale, kind)


DRAW = Dimension("draw", "independent draws from a random limit", kind="draw")
"""The dimension of the theory's draws of a random observable."""
QUANTILE = Dimension("quantile", "level of a quantile of a random limit", symbol="q")
"""The dimension along which the page shows a random observable."""


@dataclasses.dataclass(frozen=True)
class Observable:
    """A quantity that a model predicts and measures."""

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
    when: Conditions = ()
    fraction_of: str = ""
    random: bool = False

    @property
    def shown_dims(self) -> tuple[str, ...]:
        """The dimensions shown on the page: the observable's own, plus quantiles if the limit is random."""
        return (*self.dims, QUANTILE.name) if self.random else self.dims

    @property
    def theory_dims(self) -> tuple[str, ...]:
        """The dimensions of the prediction: the observable's own, plus draws if the limit is random."""
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
    - `status`: `exact` (at every size), `asymptotic` (in the limit of large size), `approximate` (known to be inaccurate
        somewhere).
    - `power`: the finite-size correction decays as `size ** -power`.
    - `low`, `high`: physical bounds, checked by the contract test over the whole range of every control.
    - `simulated`, `predicted`: whether the simulation and the theory give it.
    - `fraction_of`: for a fraction of a finite number of items, the counting control that sets this number, or `"size"`.
        The error bar is then at least the counting error, even if every seed gives the same count.
    - `when`: the choices for which it exists, e.g. `{"teacher": "sign"}` or `{"loss": ("hinge", "logistic")}`.
    - `random`: it stays random in the limit (a stochastic differential equation). The theory gives independent draws
        along an extra last dimension; they are compared with the realisations by quantiles and a two-sample test.
    """
    conditions = _conditions(when)
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
    """A paper: authors, title, year, venue, and an arXiv id or DOI if it has one."""

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
    """A control's value as a float64 array; raises `InvalidValue`."""
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
    """A choice's value as a plain string or int; raises `InvalidValue`."""
    if declaration.options is not None:
        if declaration.own and callable(value):
            return name_of(value)
        if declaration.own and isinstance(value, str) and ":" in value and function_named(value) is not None:
            return value
        if not isinstance(value, str) or value not in declaration.options:
            own = declaration.own and isinstance(value, str) and is_text_of_a_function(value)
            nor = f", nor a function of a module that is imported or named in the variable {TRUSTED}" if own else ""
            raise InvalidValue(f"{name} = {value!r} is not one of {declaration.range}{nor}: {declaration.meaning}.")
        return str(value)
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not whole or not declaration.low <= value <= declaration.high:
        raise InvalidValue(f"{name} = {value!r} is not a whole number in {declaration.range}: {declaration.meaning}.")
    return int(value)


def checked_array(name: str, declaration: Declaration, value: Any, sizes: dict[str, int]) -> Any:
    """The value of an input or data field in its declared type; raises `InvalidValue`.

    The shape is checked against the known `sizes` of dimensions; new dimensions are added to them.
    """
    if declaration.type == "graph":
        return _checked_graph(name, declaration, value, sizes)
    array = value if isinstance(value, Tracer) else _as_typed(name, declaration, value)
    shape = "×".join(declaration.dims)
    if array.ndim != len(declaration.dims):
        raise InvalidValue(
            f"{name} has {array.ndim} dimensions instead of {len(declaration.dims)} ({shape}): {declaration.meaning}."
        )
    for dim, size in zip(declaration.dims, array.shape, strict=True):
        if sizes.setdefault(dim, size) != size:
            raise InvalidValue(
                f"{name} has {size} entries along {dim!r} instead of {sizes[dim]}: {declaration.meaning}."
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
    """An array of the declared type; values that would be rounded to an integer or boolean raise `InvalidValue`."""
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
            raise InvalidValue(f"{name} has {size} of {dim!r} instead of {sizes[dim]}: {declaration.meaning}.")
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
    """The default of an input: a fixed array, or one computed from the model's choices."""
    make: Callable[[Any], Any] | Any = declaration.default
    return make(model) if callable(make) else make


def checked_size(size: Any) -> int:
    """Check the size of a simulation; raises `InvalidValue`."""
    if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or not 2 <= size <= 10_000_000:
        raise InvalidValue(
            f"size = {size!r} is not a whole number in [2, 10000000]: the dimension d of one realisation."
        )
    return int(size)


def checked_seed(seed: Any) -> int:
    """Check a seed number; raises `InvalidValue`."""
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or not 0 <= seed < 2**63:
        raise InvalidValue(f"seed = {seed!r} is not a whole number in [0, 2^63): the number of the realisation.")
    return int(seed)
