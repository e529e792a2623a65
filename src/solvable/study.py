"""A study: theory and simulation over a grid of controls, choices, arms, sizes and seeds, with the agreement measured.

study = sv.Study(model, over={"samples": np.geomspace(0.2, 8, 60)}, sizes=[200, 400, 800], seeds=20)
study.run("runs/curve")     # shows progress; can be interrupted and run again
study.agreement()           # per observable and point: deviation, error, verdict
study.plot()                # theory as lines, experiment as points with error bars
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ._version import __version__
from .contract.axes import few
from .contract.declarations import (
    DRAW,
    Dimension,
    Observable,
    checked_choice,
    checked_number,
    checked_seed,
    checked_size,
)
from .contract.functions import refuse_local
from .errors import InvalidValue, SolvableError, UnknownName, nearest
from .lab.agreement import Agreement, compare, compare_random, judge
from .lab.compute import provenance
from .lab.execute import Executor
from .lab.memory_store import MemoryStore
from .lab.planning import (
    Cell,
    Family,
    Planning,
    cells_of,
    cells_of_study,
    number_of_cells,
    parts_of,
    plan_blocks,
    variant_id,
    variant_of,
)
from .lab.progress import progress_bar
from .lab.specifications import arguments, describe, given_fields, named_arrays, plain
from .lab.store import DamagedBlock, Store, StoreError, block_id
from .lab.stored_plans import Plan, plan_name, plans, write_plan
from .model import Model

if TYPE_CHECKING:
    import xarray as xr

    from .lab.dataset import Tables

MOST_CELLS = 10_000_000


class Study:
    """Theory and simulation of one or more models over a grid.

    **Arguments:**
    - `model`: a model, or `{name: model}` for a dimension `model`.
    - `over`: `{field: values}`; controls are swept in batches, choices block by block.
    - `arms`: `{name: {field: value}}`, named variations of any fields (schedules, spectra), for a dimension `arm`.
    - `sizes`, `seeds`: the sizes to simulate and the number of realisations (or their numbers) at each.
    - `numerics`: settings that differ from the model's own.
    - `dtype`: precision of the simulations, if it differs from the model's own.

    >>> import solvable as sv
    >>> study = sv.Study(sv.Perceptron(loss="square"), over={"samples": [0.5, 2.0]}, sizes=[40, 80], seeds=8)
    >>> dict(study.run(progress=False).sizes)
    {'samples': 2, 'size': 2, 'seed': 8}
    >>> study.agreement().verdict in ("agree", "inconclusive", "finite-size")
    True
    """

    def __init__(
        self,
        model: Model | Mapping[str, Model],
        over: Mapping[str, Sequence[Any] | np.ndarray] | None = None,
        *,
        arms: Mapping[str, Mapping[str, Any]] | None = None,
        sizes: int | Sequence[int] = (),
        seeds: int | Sequence[int] = 0,
        numerics: Mapping[str, Any] | None = None,
        dtype: str | None = None,
    ):
        self.several = not isinstance(model, Model)
        self.models: dict[str, Model] = dict(model) if isinstance(model, Mapping) else {model.id: model}
        if not self.models:
            raise InvalidValue("a study needs at least one model.")
        self.arms = {str(k): dict(v) for k, v in (arms or {}).items()}
        self.sizes = [checked_size(s) for s in ([sizes] if isinstance(sizes, (int, np.integer)) else sizes)]
        numbers: Any = range(seeds) if isinstance(seeds, (int, np.integer)) else seeds
        if len(numbers) > MOST_CELLS:  # before a list is made of them
            raise InvalidValue(f"seeds = {len(numbers)} is more than the {MOST_CELLS} cells of a study: use fewer.")
        self.seeds = [checked_seed(s) for s in numbers]
        if self.sizes != sorted(set(self.sizes)) or len(self.seeds) != len(set(self.seeds)):
            raise InvalidValue(f"sizes = {self.sizes} must be increasing, and seeds must be distinct.")
        if bool(self.sizes) != bool(self.seeds):
            raise InvalidValue(
                "a study with simulations needs both sizes and seeds; a study without them needs neither."
            )
        self.numerics, self.dtype = dict(numerics or {}), dtype
        for name, each in self.models.items():
            if each.shape != ():
                raise InvalidValue(
                    f"model {name!r} has controls of shape {each.shape}: sweep them with `over` instead."
                )
            type(each).numerics.updated(self.numerics)
        self.over = self._checked_over(over or {})
        self.store: Store | MemoryStore | None = None
        self._assembled: _Assembled | None = None
        self.variants()  # reject incompatible choices early
        points = np.prod([len(v) for v in self.grid.values()], dtype=float)
        if points * max(1, len(self.seeds)) * max(1, len(self.sizes)) > MOST_CELLS:
            raise InvalidValue(f"this grid has more than {MOST_CELLS} cells: coarsen it or split the study.")

    def _checked_over(self, over: Mapping[str, Any]) -> dict[str, list[Any]]:
        checked: dict[str, list[Any]] = {}
        for name, values in over.items():
            some = list(np.asarray(values).reshape(-1).tolist()) if not isinstance(values, str) else [values]
            if not some:
                raise InvalidValue(f"over = {{{name!r}: []}} has no values.")
            for each in self.models.values():
                each.check_names([name])
                declaration = each.fields()[name]
                if declaration.kind not in ("control", "choice"):
                    raise InvalidValue(f"{name!r} is an {declaration.kind} field: vary it with arms, not with over.")
                # Only single fields are checked here; combinations of choices are checked in the variants.
                if declaration.kind == "control":
                    some = [float(v) for v in np.asarray(checked_number(name, declaration, some))]
                else:
                    some = [checked_choice(name, declaration, v) for v in some]
            if len(set(some)) != len(some):
                raise InvalidValue(f"over = {name!r} has repeated values.")
            checked[name] = some
        return checked

    # --- the grid ---------------------------------------------------------------------------------------------------

    @property
    def grid(self) -> dict[str, list[Any]]:
        """The dimensions that theory and simulation share, in order, and their values."""
        dims: dict[str, list[Any]] = {}
        if self.several:
            dims["model"] = list(self.models)
        if self.arms:
            dims["arm"] = list(self.arms)
        return dims | self.over

    @cached_property
    def families(self) -> dict[Family, list[dict[str, int]]]:
        """The shared grid as full grids of the swept controls, each with its indices in the other dimensions."""
        swept = {n: tuple(float(v).hex() for v in self.over[n]) for n in self.swept_controls}
        outer = {n: v for n, v in self.grid.items() if n not in swept}
        families: dict[Family, list[dict[str, int]]] = {}
        for index in itertools.product(*(range(len(v)) for v in outer.values())):
            at = {name: outer[name][i] for name, i in zip(outer, index, strict=True)}
            model, key = self._variant(at.get("model"), at.get("arm"), self._choices_at(at))
            controls = model.controls()
            fixed = tuple(None if n in swept else float(v).hex() for n, v in controls.items())
            names = list(controls)
            family = Family(key, fixed, tuple((names.index(n), values) for n, values in swept.items()))
            families.setdefault(family, []).append(dict(zip(outer, index, strict=True)))
        return families

    @cached_property
    def swept_choices(self) -> tuple[str, ...]:
        """The swept fields that are choices."""
        fields = next(iter(self.models.values())).fields()
        return tuple(n for n in self.over if fields[n].kind == "choice")

    @cached_property
    def swept_controls(self) -> tuple[str, ...]:
        """The swept fields that are controls."""
        return tuple(n for n in self.over if n not in self.swept_choices)

    @cached_property
    def _variants(self) -> dict[Any, tuple[Model, str]]:
        return {}

    def _variant(self, model: str | None, arm: str | None, choices: tuple[tuple[str, Any], ...]) -> tuple[Model, str]:
        """The model at one combination of everything except the controls, and its hash."""
        at = (model, arm, choices)
        if at not in self._variants:
            base = self.models[model] if model is not None else next(iter(self.models.values()))
            try:
                made = base.replace(**(self.arms[arm] if arm is not None else {}), **dict(choices))
            except TypeError:
                raise InvalidValue(f"arm {arm!r} changes a field that is also swept.") from None
            self._variants[at] = (made, variant_id(made))
        return self._variants[at]

    def _choices_at(self, labels: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
        return tuple((n, _python(labels[n])) for n in self.swept_choices)

    def variant_at(self, labels: Mapping[str, Any]) -> Model:
        """The model at a point of the grid given by its labels, except for the swept controls."""
        return self._variant(labels.get("model"), labels.get("arm"), self._choices_at(labels))[0]

    def variants(self) -> dict[str, Model]:
        """The distinct models of this study, by the hash of everything except their controls."""
        _ = self.families
        return {key: model for model, key in self._variants.values()}

    @cached_property
    def planning(self) -> Planning:
        """The ingredients of a plan of this study."""
        variants = {key: variant_of(m, self.numerics, self.dtype) for key, m in self.variants().items()}
        return Planning(list(self.families), variants, self.sizes, self.seeds)

    def cells(self) -> list[Cell]:
        """All units of work, of theory and simulation."""
        return list(cells_of_study(*self.planning))

    def number_of_cells(self) -> int:
        """The number of units of work."""
        return number_of_cells(*self.planning)

    def plan(self, done: set[Cell] | None = None) -> list[dict[str, Any]]:
        """The blocks that cover every cell of this study not in `done`."""
        return [program | own for program, own in plan_blocks(*self.planning, done or ())]

    # --- running ----------------------------------------------------------------------------------------------------

    def run(self, path: str | os.PathLike[str] | None = None, *, progress: bool | None = None) -> xr.Dataset:
        """Compute what is not yet done and return the labelled dataset.

        With a `path` the results are stored on disk, and a study that was interrupted (or is run again with more sizes,
        seeds or points) resumes where it stopped; without a `path` they are kept in memory.
        """
        store = self.attach(path)
        plan, done = self.stored_plan(), store.done()
        todo = [row for row in plan.rows if row.block not in done]
        total = sum(row.cells for row in plan.rows)
        with progress_bar(progress, total, total - sum(row.cells for row in todo)) as advance:
            executor = Executor(plan, self.compute, store.commit, provenance)
            executor.run_all(todo, done=lambda row, _: advance(row.cells))
        return self.dataset()

    def attach(self, path: str | os.PathLike[str] | None = None) -> Store | MemoryStore:
        """Keep this study's results in the run at `path`, or in memory, from now on; computes nothing.

        >>> import solvable as sv
        >>> study = sv.Study(sv.Perceptron(loss="square"), over={"samples": [0.5, 2.0]})
        >>> _ = study.attach()
        >>> len(study.stored_plan()), study.missing()
        (1, 2)
        """
        if path is None:
            self.store = self.store or MemoryStore()
        else:
            for model in self._models.values():
                for name in model.fields_of("choice"):
                    refuse_local(name, getattr(model, name))
            self.store = Store.open_or_create(path)
            self._write_specification(self.store)
        return self.store

    def stored_plan(self, blocks: Iterable[Mapping[str, Any]] | None = None) -> Plan:
        """The plan of this study in its store: the one made on the first run there, or a new one (of `blocks`, if given).

        Plans are stored so that a resumed study computes the same batches and gives bit-identical results. A new plan
        leaves out cells that an earlier plan has already computed.
        """
        store, mine = self.attach(), plan_name(self.specification())
        if mine not in store.documents():
            covered = self._covered(store) if blocks is None else set()
            planned = plan_blocks(*self.planning, covered) if blocks is None else map(parts_of, blocks)
            try:
                write_plan(store, mine, planned, len(covered))
            except SolvableError:
                if mine not in store.documents():  # otherwise another process planned at the same time: use its plan
                    raise
        return Plan(store, mine)

    def compute(self, block: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """The results of a block of this study's plan, one row per cell."""
        from .lab import compute

        return compute.compute_block(self._models[block_id(block["variant"])], block)

    @cached_property
    def _models(self) -> dict[str, Model]:
        return self.variants()

    def _covered(self, store: Store | MemoryStore) -> set[Cell]:
        """The cells of this study that blocks of other plans have computed."""
        others = [n for n in plans(store) if n != plan_name(self.specification())]
        if not others:
            return set()
        known, finished = set(self.cells()), store.done()
        return {
            cell
            for name in others
            for block, spec in Plan(store, name)
            if block in finished
            for cell in cells_of(spec, block_id(spec["variant"]))
            if cell in known
        }

    # --- identity ---------------------------------------------------------------------------------------------------

    def specification(self) -> dict[str, Any]:
        """The whole study as plain JSON values; arrays are referred to by the name of the block that stores them."""
        types = self._types()
        return {
            "several": self.several,
            "models": {k: describe(m) for k, m in self.models.items()},
            "arms": {k: {n: plain(v, types.get(n, "float")) for n, v in a.items()} for k, a in self.arms.items()},
            "over": self.over,
            "sizes": self.sizes,
            "seeds": self.seeds,
            "numerics": self.numerics,
            "dtype": self.dtype,
        }

    def _types(self) -> dict[str, str]:
        """The element type of each field's arrays."""
        return {n: d.type for m in self.models.values() for n, d in m.fields().items()}

    def _write_specification(self, store: Store) -> None:
        types = self._types()
        for values in [*(given_fields(m) for m in self.models.values()), *self.arms.values()]:
            for name, array in named_arrays(values, types):
                if name not in store.done():
                    store.commit(name, {"array": array}, {"kind": "array"})
        self.stored_name(store, write=True)

    def stored_name(self, store: Store, write: bool = False) -> str:
        """The name under which a run stores this study."""
        mine = json.loads(json.dumps(self.specification()))
        for _ in range(100):  # if two processes add different studies at once, one must retry
            names = [n for n in store.documents() if n.startswith("study-")]
            for name in names:
                if store.read_document(name) == mine:
                    return name
            if not write:
                break
            with suppress(StoreError):
                store.write_document(f"study-{len(names) + 1:04d}", mine)
        raise SolvableError(f"the run at {store.path} does not contain this study.")

    @classmethod
    def from_specification(cls, spec: Mapping[str, Any], store: Store) -> Study:
        """The study described by a specification from a store, with its results."""
        try:
            given = arguments(spec, lambda name: store.read(name)["array"])
            study = cls(given.pop("models"), given.pop("over"), **given)
            study.store = store
            return study
        except (KeyError, TypeError, ValueError, AttributeError, StopIteration, OverflowError) as problem:
            if isinstance(problem, SolvableError):
                raise
            raise SolvableError(f"the run at {store.path} does not describe a valid study.") from problem

    # --- results ----------------------------------------------------------------------------------------------------

    def missing(self) -> int:
        """The number of cells of this study that are not done yet."""
        store = self.store
        if store is None:
            return self.number_of_cells()
        if (mine := plan_name(self.specification())) in store.documents():
            done = store.done()
            return sum(row.cells for row in Plan(store, mine).rows if row.block not in done)
        return self.number_of_cells() - len(self._covered(store))

    def _finished(self, store: Store | MemoryStore, done: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        """The completed blocks of all plans, those of this study's own plan last."""
        mine = plan_name(self.specification())
        names = sorted(plans(store), key=lambda name: name == mine)
        known = [Plan(store, name) for name in names]
        if names and names[-1] == mine and not known[-1].covered and all(r.block in done for r in known[-1].rows):
            known = known[-1:]  # the other plans are not needed
        for plan in known:
            for row in plan.rows:
                if row.block in done:
                    yield row.block, plan.specification(row.block, row)
            for block in plan.replaced:  # a block may have been completed even though it was split
                if block in done:
                    yield block, plan.specification(block)

    def dataset(self, *, copy: bool = True) -> xr.Dataset:
        """The labelled results so far.

        An observable `x` gives the variables `x_theory` (at nominal controls), `x_expected` (the theory at the realised
        ratios) and `x_simulated`; entries not done or not converged are NaN. The dataset is reassembled only when more
        blocks are done. By default a copy is returned; with `copy=False` it is the study's own dataset, which is
        read-only and stays the same object until results are added.

        >>> import solvable as sv
        >>> study = sv.Study(sv.Perceptron(loss="square"), over={"samples": [0.5, 2.0]})
        >>> mine = study.run(progress=False)
        >>> mine["test_loss_theory"][:] = 0.0
        >>> bool((study.dataset().test_loss_theory > 0).all())
        True
        >>> study.dataset(copy=False) is study.dataset(copy=False)
        True
        """
        kept = self._assembled_now()
        return kept.copy(deep=True) if copy else kept

    def tables(self) -> Tables:
        """The variables of `dataset` so far as plain arrays, `{name: (dimensions, values)}`: soon made, and without xarray.

        >>> import solvable as sv
        >>> study = sv.Study(sv.Perceptron(loss="square"), over={"samples": [0.5, 2.0]})
        >>> _ = study.run(progress=False)
        >>> dims, values = study.tables()["test_loss_theory"]
        >>> dims, values.shape
        (('samples',), (2,))
        """
        from .lab.dataset import tabulate

        store = self._stored()
        try:
            return tabulate(self, self._finished(store, store.done()), store.read)
        except DamagedBlock as problem:
            raise SolvableError(f"{problem} Delete the file and run the study again.") from None

    def _stored(self) -> Store | MemoryStore:
        if self.store is None:
            raise SolvableError("this study has no results yet: call run() first.")
        return self.store

    def _assembled_now(self) -> xr.Dataset:
        done = self._stored().done()
        if self._assembled is None or self._assembled.done != done:
            from .lab.dataset import assemble

            dataset = assemble(self, self.tables())
            dataset.attrs |= {"solvable": __version__, "study": json.dumps(self.specification()), **provenance()}
            for variable in dataset.data_vars.values():
                variable.values.flags.writeable = False
            self._assembled = _Assembled(done, dataset)
        return self._assembled.dataset

    def agreement(self, observables: Sequence[str] = ()) -> Agreement:
        """Compare simulation with theory at every point; see `solvable.lab.agreement` for the verdicts.

        All observables are compared unless some are named; the correction for multiple comparisons counts only those.
        """
        data, table = self.dataset(copy=False), []
        declared = {n: o for m in self.variants().values() for n, o in m.observables().items()}
        for name in observables:
            if name not in declared:
                raise unknown_observable(name, list(declared))
        for name, observable in declared.items():
            skipped = observables and name not in observables
            if skipped or f"{name}_simulated" not in data or f"{name}_expected" not in data:
                continue
            simulated, expected = self._compared(data[f"{name}_simulated"], data[f"{name}_expected"], observable)
            rest = [d for d in simulated.dims if d not in ("size", "seed")]
            shape = [simulated.sizes[d] for d in rest]
            points = []
            for index in np.ndindex(*shape):
                labels = {d: simulated.coords[d].values[i] if d in simulated.coords else i
                          for d, i in zip(rest, index, strict=True)}  # fmt: skip
                points.append(labels)
            if observable.random:
                seen, draws = (a.values.reshape(len(points), len(self.sizes), -1) for a in (simulated, expected))
                kinds = {"power": observable.power, "status": observable.status}
                table += compare_random(name, points, seen, draws, np.asarray(self.sizes), **kinds)
                continue
            flat = (-1, len(self.sizes), len(self.seeds))
            table += compare(
                name,
                points,
                simulated.values.reshape(flat),
                expected.values.reshape(flat),
                np.asarray(self.sizes),
                power=observable.power,
                status=observable.status,
                counted=self._counted(observable.fraction_of, points) if observable.fraction_of else None,
            )
        exists = [r for r in table if np.isfinite(r["theory"]) or np.isfinite(r["simulated"]) or not self._absent(r)]
        return Agreement(tuple(judge(exists)), tuple(self.sizes))

    def _compared(self, simulated: xr.DataArray, expected: xr.DataArray, observable: Observable) -> tuple[Any, Any]:
        """The arrays to compare, sizes and seeds (or draws of a random limit) last; a few waiting times of time pairs."""
        model = next(m for m in self.variants().values() if observable.name in m.observables())
        for dim in observable.dims:
            if model.dimensions()[dim].kind == "pair":
                some = few(simulated.sizes[dim])
                simulated, expected = simulated.isel({dim: some}), expected.isel({dim: some})
        rest = [d for d in simulated.dims if d not in ("size", "seed")]
        if observable.random:
            expected = expected.isel(seed=0) if "seed" in expected.dims else expected
            return simulated.transpose(*rest, "size", "seed"), expected.transpose(*rest, "size", DRAW.name)
        simulated, expected = _broadcast(simulated, expected)
        return simulated.transpose(*rest, "size", "seed"), expected.transpose(*rest, "size", "seed")

    def _counted(self, what: str, points: list[Mapping[str, Any]]) -> np.ndarray:
        """The denominators of an observable that is a fraction, point by size."""
        if what == "size":
            return np.tile(np.asarray(self.sizes, float), (len(points), 1))
        counts = []
        for at in points:
            model = self.variant_at(at)
            ratio = float(at.get(what, getattr(model, what)))
            counts.append([model.realised_ratio(what, ratio, s) * s for s in self.sizes])
        return np.array(counts)

    def _absent(self, row: Mapping[str, Any]) -> bool:
        """Whether an observable does not exist for a row's choices (as opposed to not having converged)."""
        return row["observable"] not in self.variant_at(row["point"]).observables()

    def dimensions(self) -> dict[str, Dimension]:
        """The dimensions of the observables (not those of the grid), as the models declare them."""
        return {n: d for m in self.variants().values() for n, d in m.dimensions().items()}

    def plot(self, show: str | Sequence[str] | None = None, **options: Any):
        """Theory as lines, simulation as points with error bars; a heat map where two controls have many values each.

        The options steer what is drawn where: `show` (observables, or `"all"`), `along` (horizontal axis), `lines`, `by`
        (panels), `log` (`"x"`, `"y"`), `size`, `finer`, `as_map`, `columns`, `axes`; see `solvable.render.plots.plot_study`.

        >>> import solvable as sv
        >>> study = sv.Study(sv.Perceptron(loss="square"), {"penalty": [0.1, 1.0], "samples": [0.5, 1.0, 2.0]})
        >>> _ = study.run(progress=False)
        >>> [axis.get_ylabel() for axis in study.plot(show="overlap", lines="samples", along="penalty", log="y").axes]
        ['overlap $m$']
        """
        from .render.plots import plot_study

        return plot_study(self, show, **options)

    def __repr__(self) -> str:
        grid = ", ".join(f"{n}: {len(v)}" for n, v in self.grid.items()) or "one point"
        sims = f"; sizes {self.sizes}, {len(self.seeds)} seeds" if self.sizes else "; theory only"
        return f"<Study of {', '.join(self.models)} over {grid}{sims}>"


def open(path: str | os.PathLike[str]) -> Study:
    """Open a stored study with its results; `run(path)` computes what is missing."""
    store = Store.open(path)
    names = [n for n in store.documents() if n.startswith("study-")]
    if not names:
        raise SolvableError(f"the run at {store.path} contains no study.")
    return Study.from_specification(store.read_document(names[-1]), store)


class _Assembled(NamedTuple):
    """A dataset and the store entries it was assembled from."""

    done: Mapping[str, Any]
    dataset: xr.Dataset


# --- small helpers ----------------------------------------------------------------------------------------------------


def _python(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _broadcast(simulated: Any, expected: Any) -> tuple[Any, Any]:
    import xarray as xr

    return xr.broadcast(simulated, expected)


def unknown_observable(name: str, known: Sequence[str]) -> UnknownName:
    """The error for an observable that a study does not have."""
    return UnknownName(f"this study has no observable {name!r}; {nearest(name, list(known))}")
