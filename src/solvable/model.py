"""The base class of all models: declared fields, theory, simulation.

A model is a frozen Equinox module. Its author writes three things:

- the fields, with `control`, `choice`, `input` and `data`;
- `point(numerics)`: the theory at *scalar* controls, pure JAX, returning `{observable: value}` together with
  `converged` and `residual`;
- `experiment(key, size, counts, dtype)`: one finite-size realisation, returning measurements under the same names.

The base class handles broadcasting, batching, compilation, padding, random keys, labels, and NaN where the theory did
not converge.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PRNGKeyArray

from .contract.compiled import Count, bucket, simulate_batch
from .contract.compiled import _branches as branches_program
from .contract.compiled import _theory as theory_program
from .contract.declarations import (
    DRAW,
    Declaration,
    Dimension,
    Observable,
    Reference,
    checked_array,
    checked_choice,
    checked_number,
    checked_seed,
    checked_size,
    choice,
    control,
    data,
    dimension,
    graph,
    input,
    observable,
    resolve_default,
)
from .contract.graphs import Graph
from .contract.outcome import Outcome, brief
from .contract.settings import FirstView, Guard, Numerics
from .contract.values import fingerprint, key_words
from .errors import InvalidValue, SolvableError, UnknownName, nearest

if TYPE_CHECKING:
    Control = Any
    Input = Any
else:
    # Fields with these annotations accept anything number-like and store a float64 array.
    Control = Array
    Input = Array

__all__ = [
    "Control",
    "Count",
    "Declaration",
    "Dimension",
    "FirstView",
    "Graph",
    "Guard",
    "Input",
    "Model",
    "Numerics",
    "Observable",
    "Outcome",
    "Reference",
    "bucket",
    "choice",
    "control",
    "data",
    "dimension",
    "graph",
    "input",
    "observable",
    "simulate_batch",
]


INSTANT, KEPT = 0.05, 30.0
"""Seconds per point: a theory is `instant` up to the first number and `kept` beyond the second."""


class _Names(tuple[str, ...]):
    """Names that compare equal to any others, so that models that differ only in them share compiled programs."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, tuple)

    def __hash__(self) -> int:
        return 0


class Model(eqx.Module):
    """Base class of all models; the module's docstring lists what an author writes.

    A model holds physics only. The constructor checks every value and computes nothing; `replace` returns a changed copy.
    """

    id: ClassVar[str] = ""
    title: ClassVar[str] = ""
    sentence: ClassVar[str] = ""  # a one-sentence summary for listings
    method: ClassVar[str] = ""  # the mathematics that solves it
    family: ClassVar[str] = ""
    revision: ClassVar[int] = 1
    observables_declared: ClassVar[tuple[Observable, ...]] = ()
    # The observables that answer the model's question, drawn unless others are named: see `main_observables`.
    main_declared: ClassVar[tuple[str, ...]] = ()
    dimensions_declared: ClassVar[tuple[Dimension, ...]] = ()
    arms_declared: ClassVar[
        Mapping[str, Mapping[str, Any]]
    ] = {}  # named variations: `Study(model, arms=model.arms_declared)`
    # Fields that do not enter the random keys: cells that differ in these alone have the same key and can draw the same
    # data, so that learners are compared on equal terms.
    paired: ClassVar[tuple[str, ...]] = ()
    references: ClassVar[tuple[Reference, ...]] = ()
    numerics: ClassVar[Numerics] = Numerics()
    runs: ClassVar[Literal["vmap", "map", "host"]] = "vmap"
    # With `runs = "host"`: how many realisations `experiments` draws at once.
    together: ClassVar[int] = 1
    simulation_dtype: ClassVar[str] = "float32"
    # A dimension of the observables (such as `time`) along which `converged` may have one entry per value: see `point`.
    converges_along: ClassVar[str] = ""
    theory_lanes: ClassVar[int] = (
        1024  # points computed at once; use fewer if they need much memory, 1 if their loops differ in length
    )
    typical_sizes: ClassVar[tuple[int, ...]] = (100, 200, 400)
    # Approximate core-seconds of a point of the theory and of a realisation at the largest typical size, and the power of
    # the size with which the latter grows. Sweeps use them to size blocks; nothing else depends on them.
    theory_seconds: ClassVar[float] = 1e-3
    # The cost class of a point (see `cost_class`); derived from `theory_seconds` unless declared.
    theory_cost: ClassVar[Literal["", "instant", "seconds", "kept"]] = ""
    simulation_seconds: ClassVar[float] = 0.1
    simulation_growth: ClassVar[float] = 2.0
    accuracy: ClassVar[float] = 1e-8  # the largest change that finer numerics may cause
    residual_accuracy: ClassVar[float] = 1e-10  # the largest residual; that of a sampled theory is an estimated error
    search_settings: ClassVar[tuple[str, ...]] = ()  # numerics that set the length of a search, not its resolution
    batch_accuracy: ClassVar[float] = (
        1e-12  # the largest difference between a point in a batch and the same point alone
    )
    gradient_accuracy: ClassVar[float] = 1e-6
    gradient_numerics: ClassVar[Mapping[str, Any]] = {}  # finer ones at which gradients are compared with differences
    check_study: ClassVar[
        Mapping[str, Any] | tuple[Mapping[str, Any], ...]
    ] = {}  # arguments of the studies that `solvable check` runs
    guard: ClassVar[Guard] = Guard()
    first_view: ClassVar[FirstView] = FirstView()
    # At size d, simulated means differ from the theory by at most `finite_size * d**-power` of the observable's scale.
    finite_size: ClassVar[float] = 2.0
    inconclusive: ClassVar[float] = 0.1  # the share of rows of `check_study` that may be too noisy to decide

    _from_defaults: _Names = eqx.field(default=(), init=False, static=True, repr=False)

    # --- construction -----------------------------------------------------------------------------------------------

    def __post_init__(self) -> None:
        sizes: dict[str, int] = {}
        fields = self.fields()
        for name, declaration in fields.items():
            value = getattr(self, name)
            if declaration.kind == "control":
                self.__setattr__(name, checked_number(name, declaration, value))
            elif declaration.kind == "choice":
                self.__setattr__(name, checked_choice(name, declaration, value))
                if declaration.options is None:
                    sizes[name] = getattr(self, name)
        defaulted = []
        for name, declaration in fields.items():
            if declaration.kind in ("input", "data"):
                value = getattr(self, name)
                if value is None and declaration.default is not None:
                    defaulted.append(name)
                    value = resolve_default(declaration, self)
                if value is not None:
                    self.__setattr__(name, checked_array(name, declaration, value, sizes))
        self._from_defaults = _Names(defaulted)
        try:
            np.broadcast_shapes(*(np.shape(v) for v in self.controls().values()))
        except ValueError:
            shapes = ", ".join(f"{n} {np.shape(v)}" for n, v in self.controls().items() if np.shape(v))
            raise InvalidValue(f"the controls' shapes do not broadcast together: {shapes}.") from None
        self.validate()

    def validate(self) -> None:
        """Override to reject invalid combinations of choices: raise `InvalidValue` with a one-sentence message."""

    @classmethod
    def fields(cls) -> dict[str, Declaration]:
        """Every declared field, in order."""
        return {f.name: f.metadata["solvable"] for f in dataclasses.fields(cls) if "solvable" in f.metadata}

    @classmethod
    def fields_of(cls, *kinds: str) -> dict[str, Declaration]:
        """The declared fields of some kinds: `"control"`, `"choice"`, `"input"`, `"data"`."""
        return {name: declaration for name, declaration in cls.fields().items() if declaration.kind in kinds}

    @classmethod
    def what_it_has(cls) -> Literal["theory and simulation", "theory", "experiment"]:
        """Whether the model has a theory and a simulation, only a theory, or only a simulation (an experiment)."""
        if cls.point is Model.point:
            return "experiment"
        return "theory" if cls.experiment is Model.experiment else "theory and simulation"

    @classmethod
    def cost_class(cls) -> Literal["instant", "seconds", "kept"]:
        """The cost of one point of the theory.

        - `instant`: fast enough for a slider; lines are drawn on a finer grid than the study's own;
        - `seconds`: the page shows a preview first; lines join the study's points;
        - `kept`: minutes. A study computes the theory once and everything else reads the stored results; it is never
          evaluated for plots, previews or property tests.
        """
        if cls.theory_cost:
            return cls.theory_cost
        return "instant" if cls.theory_seconds <= INSTANT else "seconds" if cls.theory_seconds <= KEPT else "kept"

    @classmethod
    def create(cls, **values: Any) -> Self:
        """Like the constructor, but a misspelt field raises `UnknownName`, which names the nearest field."""
        cls.check_names(values)
        return cls(**values)

    @classmethod
    def check_names(cls, names: Any) -> None:
        """Raise `UnknownName` for a name that is not a field of this model."""
        for name in names:
            if name not in cls.fields():
                raise UnknownName(f"{cls.id} has no field {name!r}; {nearest(name, list(cls.fields()))}")

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed; inputs left at their defaults are recomputed from the new choices.

        >>> import solvable as sv
        >>> float(sv.Perceptron(samples=2).replace(samples=3).samples)
        3.0
        """
        self.check_names(changes)
        kept = {n: getattr(self, n) for n in self.fields() if n not in self._from_defaults}
        return type(self)(**{**kept, **changes})

    def controls(self) -> dict[str, Array]:
        """The values of the controls, by name."""
        return {n: getattr(self, n) for n in self.fields_of("control")}

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape that the controls broadcast to: `()` for a single point."""
        return np.broadcast_shapes(*(np.shape(v) for v in self.controls().values()))

    def with_values(self, values: Mapping[str, Array]) -> Self:
        """A copy with new values of some array fields; nothing is checked (for traced code)."""
        names = tuple(values)
        return eqx.tree_at(
            lambda m: [getattr(m, n) for n in names], self, [values[n] for n in names], is_leaf=lambda x: x is None
        )

    def matters(self, field: str) -> bool:
        """Whether a field changes anything for this model's choices, as declared by its `when`."""
        return all(getattr(self, name) in allowed for name, allowed in self.fields()[field].when)

    def observables(self) -> dict[str, Observable]:
        """The observables that exist for this model's choices."""
        return {
            o.name: o
            for o in self.observables_declared
            if all(getattr(self, name) in allowed for name, allowed in o.when)
        }

    def main_observables(self) -> tuple[str, ...]:
        """The observables that plots show unless others are named, as far as they exist for this model's choices.

        They are those of `main_declared`, or else the first four numbers (not curves), compared ones before others.

        >>> import solvable as sv
        >>> sv.Perceptron(loss="square", teacher="linear").main_observables()
        ('test_loss', 'train_loss', 'overlap')
        """
        known = self.observables()
        if declared := tuple(n for n in self.main_declared if n in known):
            return declared
        ranked = sorted(known, key=lambda n: (bool(known[n].dims), not (known[n].predicted and known[n].simulated)))
        numbers = [n for n in ranked if not known[n].dims]
        return tuple((numbers or ranked)[:4])

    def dimensions(self) -> dict[str, Dimension]:
        """The dimensions of this model's observables; those not declared are of kind `label`."""
        declared = {d.name: d for d in (*self.dimensions_declared, DRAW)}
        names = dict.fromkeys(d for o in self.observables().values() for d in o.theory_dims)
        return {name: declared.get(name, Dimension(name)) for name in names}

    def coordinates(self) -> dict[str, np.ndarray]:
        """The coordinates of the dimensions of the observables (times, bin centres); override if there are any."""
        return {}

    def transition(self, along: str) -> Array:
        """At every point, a number that changes sign at the transition along a control; override if it is known."""
        raise SolvableError(f"{self.id} declares no transition.")

    def transition_lines(self, x: str, y: str, values: np.ndarray) -> dict[str, Any]:
        """Transition lines in the plane of two controls, `{name: y at each x}`; override if they are known."""
        return {}

    # --- theory -----------------------------------------------------------------------------------------------------

    def point(self, numerics: Numerics) -> dict[str, Array]:
        """The theory at scalar controls. An experiment (a model without a closed theory) does not define it.

        An observable that can fail on its own may report `NAME_converged`, which counts only if that observable is computed
        (see `only` in `theory`). An integration in time may fail half-way: with `converges_along = "time"`, `converged` may
        be an array along `time`. Observables with that dimension are kept where it is true; all others are kept only if it
        is true everywhere.
        """
        raise SolvableError(f"{self.id} has no closed theory: it is an experiment, measured by `simulate`.")

    def point_branches(self, numerics: Numerics) -> dict[str, Array]:
        """All solutions at scalar controls, on a leading NaN-padded branch axis of fixed size, with `free_energy`."""
        values = self.point(numerics)
        return {name: jnp.asarray(v)[None] for name, v in values.items()}

    @property
    def stated_accuracy(self) -> float:
        """The largest change that finer numerics may cause: `accuracy`, unless the choices need coarser averages."""
        return type(self).accuracy

    @property
    def accurate_observables(self) -> tuple[str, ...]:
        """Observables with `stated_accuracy`: all, unless a search fixes its objective far better than its argument."""
        return tuple(self.observables())

    @property
    def corner_numerics(self) -> dict[str, Any]:
        """Numerics of the corner checks that differ from the defaults, for choices at which these would take hours."""
        return {}

    @property
    def has_theory(self) -> bool:
        return type(self).point is not Model.point

    @property
    def answers_at_once(self) -> bool:
        """Whether `theory()` may be called for a plot: it exists, needs no preparation and is not `kept`."""
        return self.has_theory and not self.unprepared and self.cost_class() != "kept"

    @property
    def unprepared(self) -> bool:
        """Whether the theory first needs something drawn at finite size; override together with `prepare`."""
        return False

    def theory(self, numerics: Mapping[str, Any] | None = None, *, only: Sequence[str] | None = None) -> Outcome:
        """The exact prediction at every point of the broadcast controls, for all observables or those in `only`.

        >>> import solvable as sv
        >>> outcome = sv.Perceptron(loss="logistic", samples=[0.5, 2.0], penalty=0.1).theory()
        >>> [round(float(e), 6) for e in outcome.test_error]
        [0.322751, 0.179662]
        """
        if only is None:
            return self._predict(theory_program, "theory", numerics, ())
        for name in only:
            if name not in (known := [n for n, o in self.observables().items() if o.predicted]):
                raise UnknownName(f"{self.id} does not predict {name!r} with these choices; {nearest(name, known)}")
        return self._predict(partial(theory_program, only=tuple(only)), "theory", numerics, ())

    def branches(self, numerics: Mapping[str, Any] | None = None) -> Outcome:
        """Every solution found, on a NaN-padded `branch` axis after the controls, with its free energy."""
        return self._predict(branches_program, "branches", numerics, ("branch",))

    def _predict(
        self, compiled: Any, source: str, numerics: Mapping[str, Any] | None, extra: tuple[str, ...]
    ) -> Outcome:
        if jnp.result_type(float) != jnp.float64:
            raise SolvableError("theories need 64-bit floats: unset SOLVABLE_ENABLE_X64=0 or enable jax_enable_x64.")
        if self.unprepared:
            raise SolvableError(
                f"the theory of this {self.id} must be prepared first: call prepare(key, size) or use a Study."
            )
        values, converged, residual, entrywise = compiled(self, type(self).numerics.updated(numerics))
        return self._labelled(values, converged, residual, source, extra, entrywise)

    def _labelled(
        self,
        values: dict[str, Array],
        converged: Array,
        residual: Array,
        source: str,
        extra: tuple[str, ...] = (),
        entrywise: Array | None = None,
    ) -> Outcome:
        declared = self.observables()
        order = [*(n for n in declared if n in values), *(n for n in values if n not in declared)]
        own = {n: o.dims if source == "simulation" else o.theory_dims for n, o in declared.items()}
        dims = tuple((n, extra + own.get(n, ())) for n in order)
        along = type(self).converges_along if entrywise is not None else ""
        return Outcome({n: values[n] for n in order}, converged, residual, source, dims, entrywise, along)

    # --- simulation -------------------------------------------------------------------------------------------------

    def experiment(self, key: PRNGKeyArray, size: int, counts: Mapping[str, Count], dtype: Any) -> dict[str, Array]:
        """One finite-size realisation at scalar controls: pure JAX for `runs = "vmap" | "map"`, any Python for `"host"`."""
        raise SolvableError(f"{self.id} has no simulation.")

    def experiments(
        self, keys: Key[Array, " lanes"], size: int, counts: Mapping[str, Count], dtype: Any
    ) -> Sequence[dict[str, Array]]:
        """Realisations at the same controls, one for every key (`runs = "host"`): one after the other, unless overridden.

        A model that trains networks side by side declares `together`, how many.
        """
        return [self.experiment(key, size, counts, dtype) for key in keys]

    def prepare(self, key: PRNGKeyArray, size: int) -> Model:
        """Draw what the theory needs at this size (initial overlaps, a trained map) and return the completed model."""
        return self

    def simulate(
        self,
        seed: int | None = None,
        size: int | None = None,
        *,
        key: PRNGKeyArray | None = None,
        dtype: str | None = None,
    ) -> Outcome:
        """Draw one realisation of this size and measure the same observables.

        The random key is derived from the model's content, the size and the seed number, so that this call gives the
        same realisation as the corresponding cell of a study. Alternatively, pass your own `key`.
        """
        size = checked_size(type(self).typical_sizes[-1] if size is None else size)
        if self.shape != ():
            raise InvalidValue(f"simulate needs scalar controls, but they have shape {self.shape}: use a Study.")
        if (seed is None) == (key is None) and seed is not None:
            raise InvalidValue("simulate takes a seed or a key, not both.")
        if key is None:
            key = self.key(size, checked_seed(0 if seed is None else seed))
        model = self.prepared(key, size)
        return model.outcome_of(simulate_batch(model, {}, key[None], size, dtype=dtype), lane=0)

    def prepared(self, key: PRNGKeyArray, size: int) -> Model:
        """The model of the cell with this key: prepared if necessary, otherwise unchanged."""
        return self.prepare(jax.random.fold_in(key, 1), size) if self.unprepared else self

    def outcome_of(self, batch: dict[str, Array], lane: int) -> Outcome:
        """One lane of a simulated batch, with labels."""
        values = {n: v[lane] for n, v in batch.items()}
        converged = jnp.asarray(values.pop("converged"))
        residual = jnp.asarray(values.pop("residual"))
        return self._labelled(values, converged, residual, "simulation")

    @classmethod
    def realised_ratio(cls, name: str, value: float, size: int) -> float:
        """The ratio that a simulation of this size actually has when `value` is requested."""
        return max(1, round(value * size)) / size if cls.fields()[name].counts else value

    def realised(self, size: int) -> Self:
        """The model at the ratios that a simulation of this size actually has."""
        counting = [n for n, declaration in self.fields_of("control").items() if declaration.counts]
        real = {n: self.realised_ratio(n, float(getattr(self, n)), size) for n in counting}
        return self.with_values({n: jnp.asarray(v) for n, v in real.items()}) if counting else self

    # --- identity ---------------------------------------------------------------------------------------------------

    def specification(self) -> dict[str, Any]:
        """The model as plain JSON values: floats as hexadecimal strings, arrays by their hash."""
        spec: dict[str, Any] = {"model": self.id, "revision": self.revision}
        for name, declaration in self.fields().items():
            value = getattr(self, name)
            if declaration.kind == "control" and np.ndim(value) == 0:
                spec[name] = float(value).hex()
            elif declaration.kind == "choice" or value is None:
                spec[name] = value
            else:
                spec[name] = fingerprint(value, declaration.type)
        return spec

    def key(self, size: int, seed: int) -> PRNGKeyArray:
        """The random key of the cell (this model, size, seed): a hash of its content, not of its place in a sweep."""
        words = key_words(self.keyed(self.specification()), size, seed)
        return jax.random.wrap_key_data(jnp.asarray(words), impl="threefry2x32")

    @classmethod
    def keyed(cls, specification: Mapping[str, Any]) -> dict[str, Any]:
        """The part of a specification that random keys depend on: everything except the `paired` fields."""
        return {n: v for n, v in specification.items() if n not in cls.paired}

    def __str__(self) -> str:
        parts = []
        for name, declaration in self.fields().items():
            value = getattr(self, name)
            if declaration.kind == "control":
                parts.append(f"{name}={brief(np.asarray(value)) if np.ndim(value) else f'{float(value):g}'}")
            elif declaration.kind == "choice":
                parts.append(f"{name}={value!r}")
        return f"{type(self).__name__}({', '.join(parts)})"
