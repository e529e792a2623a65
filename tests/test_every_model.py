"""Quick checks of every registered model: contract, reference values, simulation, first view.

There is one test per model, so that its programs are compiled once: the page's first view uses the same shapes.
"""

import numpy as np
import pytest

import solvable as sv
from durations import known
from solvable.lab.check import guard

MODELS = list(sv.listings())
BUDGET, MOST = 5.0, 10.0  # processor seconds per model, average and maximum, without a compilation cache


@pytest.mark.parametrize("id", MODELS)
def test_a_model_keeps_its_contract_its_reference_values_and_its_place_on_the_page(id, running):
    findings = guard(id)
    assert [str(f) for f in findings if not f.kept] == []
    kind = sv.model_class(id)
    references = sum(f.numbers for f in findings if "reference value" in f.promise)
    assert references >= 4 or kind.point is sv.Model.point
    the_first_view_shows_the_theory(running, id, kind.guard.values)


def the_first_view_shows_the_theory(running, id, values):
    page = running.get(f"/api/models/{id}").json
    declared = sv.create(id, **values).observables()
    there = [name for name in page["default_view"]["observables"] if name in declared]
    assert there
    if not any(declared[name].dims for name in there):  # with one that has dimensions the view has the guard's program
        there += [n for n, o in declared.items() if o.predicted and o.dims and not o.random][:1]
    view = page["default_view"] | {"values": values, "observables": there}
    assert page["about_html"].startswith("<p>")
    assert {f["name"] for f in page["fields"]} == set(sv.model_class(id).fields())
    answer = running.post("/api/theory", {"view": view}).json
    if not page["has_theory"]:
        assert answer["series"] == []
        assert "experiment" in answer["note"]
        return
    assert [s["observable"] for s in answer["series"]] == view["observables"]
    assert answer["not_converged"] == 0
    for series in answer["series"]:
        shown = np.asarray(series["values"], float)
        own = [len(answer["coordinates"][d]) for d in series["dims"] if not view["x"] or d != view["x"]["field"]]
        assert shown.shape == (*([60] if view["x"] else []), *own)
        bounds = declared[series["observable"]]
        assert np.all((shown >= bounds.low - 1e-9) & (shown <= bounds.high + 1e-9))


def test_no_model_takes_longer_than_its_budget():
    """Uses the recorded durations, which `make durations` updates."""
    taken = {
        n.split("[")[1][:-1]: s for n, s in known().items() if n.startswith("tests/test_every_model.py") and "[" in n
    }
    assert set(taken) == set(MODELS)
    assert {id: s for id, s in taken.items() if s > MOST} == {}
    assert sum(taken.values()) <= BUDGET * len(taken)
