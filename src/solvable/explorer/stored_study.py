"""A stored study, opened once when the server starts and shown like any view. Requests never name a path."""

from __future__ import annotations

import itertools
import shlex
import threading
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from ..contract.axes import QUANTILES
from ..contract.declarations import QUANTILE
from ..errors import InvalidValue
from ..study import Study, unknown_observable
from .describe import dimensions, symbol
from .theory import plain
from .views import Refused

KINDS = ("theory", "expected", "simulated")
MOST_NUMBERS = 200_000


class StoredStudy:
    """The study behind `solvable explore RUN`."""

    def __init__(self, study: Study, run: Path):
        self.study, self.run = study, run
        self.data: Any = None
        self._agreement: dict[str, Any] | None = None
        self._lock = threading.Lock()
        self.refresh()

    def refresh(self) -> None:
        """Read the study again if new results have been committed."""
        with self._lock:
            if (data := self.study.dataset(copy=False)) is not self.data:
                self.data, self._agreement = data, None

    def about(self) -> dict[str, Any]:
        """Dimensions, controls, sizes, seeds, observables."""
        self.refresh()
        model = next(iter(self.study.models.values()))
        fields = model.fields()
        grid = self.study.grid
        declared = self._declared()
        return {
            "name": self.run.name,
            "model": model.id,
            "title": "; ".join(dict.fromkeys(m.title for m in self.study.models.values())),
            "models": {n: str(m) for n, m in self.study.models.items()},
            "dims": {n: list(v) for n, v in grid.items()},
            "scales": {n: fields[n].scale if n in fields else "linear" for n in grid},
            "symbols_mathml": {n: symbol(fields[n].symbol) if n in fields else "" for n in grid},
            "sizes": self.study.sizes,
            "seeds": len(self.study.seeds),
            "cells": len(self.study.cells()),
            "missing": self.study.missing(),
            "observables": [
                {"name": n, "meaning": o.meaning, "symbol_mathml": symbol(o.symbol), "dims": list(o.shown_dims),
                 "status": o.status} for n, o in declared.items()
            ],
            "dimensions": dimensions(self.study.dimensions()),
            "coordinates": {str(d): np.asarray(self.data[d].values).tolist() for d in self.data.dims
                            if d in self.data.coords},
            **self._held(),
        }  # fmt: skip

    def _held(self) -> dict[str, Any]:
        """Values that are the same in the whole study, and those that differ between its models and arms, by their names."""
        grid = self.study.grid
        names = {d: grid[d] for d in ("model", "arm") if d in grid}
        first = {d: v[0] for d, v in grid.items()}
        found = {}
        for labels in itertools.product(*names.values()):
            at = dict(zip(names, labels, strict=True))
            found[", ".join(map(str, labels))] = _scalars(self.study.variant_at(first | at))
        every = list(dict.fromkeys(n for values in found.values() for n in values if n not in grid))
        here = {n: {where: values[n] for where, values in found.items() if n in values} for n in every}
        same = {n: len(v) == len(found) and len(set(v.values())) == 1 for n, v in here.items()}
        return {"values": {n: next(iter(here[n].values())) for n in every if same[n]},
                "differs": {n: here[n] for n in every if not same[n]}}  # fmt: skip

    def series(self, request: Any) -> dict[str, Any]:
        """Theory and points along one dimension, with every other dimension at one of its values."""
        if not isinstance(request, dict) or any(k not in ("x", "y", "observables", "at") for k in request):
            raise Refused("a request for a stored study takes x, y, observables and at.")
        grid, at = self.study.grid, request.get("at", {})
        axes = [a for a in (request.get("x"), request.get("y")) if a is not None]
        if not isinstance(at, dict) or any(not isinstance(a, str) for a in axes) or len(set(axes)) < len(axes):
            raise Refused("x and y must be names of different dimensions, and at an object {dimension: value}.")
        names = self.checked(request.get("observables") or list(self._declared())[:1])
        pick = {d: self._index(d, at.get(d), grid[d]) for d in grid if d not in axes}
        for name in at:
            if name not in grid:
                raise Refused(
                    f"this study has no dimension {str(name)[:60]!r}; it has {', '.join(grid) or 'none'}.", "at"
                )
        series, points = [], []
        for name in names:
            own = list(self._declared()[name].dims)
            for axis in axes:
                if axis not in [*grid, *own]:
                    raise Refused(f"there is no dimension {axis[:60]!r} to draw {name} along.", "x")
            lead = [a for a in axes if a in grid]
            series += self._curve(name, pick, lead, own)
            points += self._points(name, pick, lead, own)
        across = axes[0] if axes else None
        return {"x": self._axis(across), "y": self._axis(axes[1]) if len(axes) > 1 else None, "series": series,
                "points": points, "lines": [], "not_converged": 0, "cached": True,
                "coordinates": {QUANTILE.name: list(QUANTILES)}
                | {d: c for d, c in self.about()["coordinates"].items() if d not in grid}}  # fmt: skip

    def agreement(self) -> dict[str, Any] | None:
        """The agreement in the format of a job; None if there is nothing to compare."""
        from .worker import agreement_of

        if not self.study.sizes or not any(m.has_theory for m in self.study.models.values()):
            return None
        self._agreement = self._agreement or agreement_of(self.study)
        return self._agreement

    def checked(self, request: Any) -> list[str]:
        """The observables that a view of this study shows; raises an error for unknown ones."""
        if not isinstance(request, list) or not all(isinstance(n, str) for n in request):
            raise Refused("the observables of a view must be a list of names.", "observables")
        for name in request:
            if name not in self._declared():
                raise Refused(str(unknown_observable(name[:200], list(self._declared()))), "observables")
        return request

    def steered(self, request: dict[str, Any]) -> dict[str, str]:
        """The words of a request that steer a plot: `along`, `lines`, `by`, `log`; raises an error for wrong ones."""
        from ..render.layout import check_words

        words = {w: request[w] for w in ("along", "lines", "by", "log") if request.get(w) is not None}
        for word, value in words.items():
            if not isinstance(value, str) or len(value) > 200:
                raise Refused(f"{word} must be a few names, separated by commas.", word)
        check_words(self.study, **words)
        return words

    def reproduce(self, request: dict[str, Any], address: str) -> dict[str, str]:
        """A program, a command and a link that show this study."""
        names = self.checked(request.get("observables") or [])
        path = str(self.run.resolve())
        words = self.steered(request)
        shown = [repr(names[0]) if len(names) == 1 else repr(names)] if names else []
        shown += [f"{word}={value!r}" for word, value in words.items()]
        lines = ["import solvable as sv", "", f"study = sv.open({path!r})", "data = study.dataset()", "print(data)"]
        lines += ["print(study.agreement())"] if self.agreement() is not None else []
        lines += [f"study.plot({', '.join(shown)}).savefig('study.png')"]
        shell = f"solvable sweep export {shlex.quote(path)} --to csv --out study.csv\n"
        link = f"{address}/?study=1" + (f"&show={','.join(names)}" if names else "")
        link += "".join(f"&{word}={quote(value, safe=',')}" for word, value in words.items())
        return {"python": "\n".join(lines) + "\n", "shell": shell, "link": link}

    def _declared(self) -> dict[str, Any]:
        every = {n: o for m in self.study.variants().values() for n, o in m.observables().items()}
        return {n: o for n, o in every.items() if any(f"{n}_{k}" in self.data for k in KINDS)}

    def _axis(self, dim: str | None) -> dict[str, Any] | None:
        if dim is None:
            return None
        values = self.data[dim].values if dim in self.data.coords else np.arange(self.data.sizes.get(dim, 0))
        return {"field": dim, "values": np.asarray(values).tolist()}

    def _index(self, dim: str, value: Any, known: list[Any]) -> int:
        if value is None:
            return 0
        try:
            return known.index(value)
        except ValueError:
            pass
        if isinstance(value, (int, float)) and all(isinstance(k, (int, float)) for k in known):
            return int(np.argmin(np.abs(np.asarray(known, float) - float(value))))
        raise Refused(f"{dim} = {str(value)[:60]} is not one of this study's values.", "at")

    def _array(self, variable: str, pick: dict[str, int], order: list[str]) -> np.ndarray:
        array = self.data[variable]
        array = array.isel({d: i for d, i in pick.items() if d in array.dims})
        array = array.transpose(*(d for d in order if d in array.dims))
        if array.size > MOST_NUMBERS:
            raise InvalidValue(f"{variable} has {array.size} numbers here; fix more dimensions, or export it.")
        return array.values

    def _curve(self, name: str, pick: dict[str, int], lead: list[str], own: list[str]) -> list[dict[str, Any]]:
        observable = self._declared()[name]
        inner = list(observable.theory_dims)
        about = {"observable": name, "label": name.replace("_", " "), "symbol_mathml": symbol(observable.symbol),
                 "status": observable.status, "dims": [*lead, *observable.shown_dims], "stored": True}  # fmt: skip
        if f"{name}_theory" in self.data:
            values = self._array(f"{name}_theory", pick, [*lead, *inner])
        elif f"{name}_expected" in self.data:
            # The theory of every realisation on its own: their mean at the largest size.
            pick = pick | {"size": len(self.study.sizes) - 1}
            about["size"] = self.study.sizes[-1]
            values = self._array(f"{name}_expected", pick, [*lead, "seed", *inner])
            values = np.mean(values, axis=tuple(range(len(lead), values.ndim - len(inner))))
        else:
            return []
        if observable.random:
            values = np.moveaxis(np.quantile(values, QUANTILES, axis=-1), 0, -1)
        return [about | {"values": plain(values), "converged": np.isfinite(values).tolist()}]

    def _points(self, name: str, pick: dict[str, int], lead: list[str], own: list[str]) -> list[dict[str, Any]]:
        if f"{name}_simulated" not in self.data:
            return []
        from .worker import mean_over

        values = self._array(f"{name}_simulated", pick, [*lead, "size", "seed", *own])
        axis = len(lead) + 1
        if self._declared()[name].random:
            return self._quantiles(name, values, lead, own)
        number = np.isfinite(values).sum(axis)
        mean = np.where(number > 0, np.nansum(values, axis) / np.maximum(number, 1), np.nan)
        spread = np.sqrt(np.nansum((values - np.expand_dims(mean, axis)) ** 2, axis) / np.maximum(number - 1, 1))
        error = np.where(number > 1, spread / np.sqrt(np.maximum(number, 1)), np.nan)
        theory, known = None, self.data[f"{name}_expected"].dims if f"{name}_expected" in self.data else ()
        if {*lead, "size"} <= {*known}:  # what the points are compared with
            theory = self._array(f"{name}_expected", pick, [*lead, "size", "seed", *own])
            theory = mean_over(theory, axis) if "seed" in known else theory
        out = []
        for i, size in enumerate(self.study.sizes):
            at = (slice(None),) * len(lead) + (i,)
            out.append({"observable": name, "size": size, "dims": [*lead, *own], "mean": plain(mean[at]),
                        "error": plain(error[at]), "seeds": len(self.study.seeds)})  # fmt: skip
            if theory is not None:
                out[-1]["expected"] = plain(theory[at])
        return out

    def _quantiles(self, name: str, values: np.ndarray, lead: list[str], own: list[str]) -> list[dict[str, Any]]:
        """Points of a random limit: its quantiles over the seeds."""
        from .worker import quantiles_of

        axis, out = len(lead), []
        for i, size in enumerate(self.study.sizes):
            mean, error = quantiles_of(np.moveaxis(np.take(values, i, axis), axis, 0))
            out.append({"observable": name, "size": size, "dims": [*lead, *own, QUANTILE.name], "mean": plain(mean),
                        "error": plain(error), "seeds": len(self.study.seeds)})  # fmt: skip
        return out


def _scalars(model: Any) -> dict[str, Any]:
    fields = model.fields_of("control", "choice")
    return {n: getattr(model, n) if fields[n].kind == "choice" else float(getattr(model, n)) for n in fields}
