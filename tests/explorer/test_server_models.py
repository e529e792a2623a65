"""Every registered model on the page: its description, its first curve, a small simulation."""

import numpy as np
import pytest

import solvable as sv
from solvable.models import LISTINGS

IDS = [line.id for line in LISTINGS]


@pytest.mark.parametrize("id", IDS)
def test_the_first_view_shows_the_theory(running, id):
    about = running.get(f"/api/models/{id}").json
    view = about["default_view"]
    assert about["about_html"].startswith("<p>")
    assert {f["name"] for f in about["fields"]} == set(sv.model_class(id).fields())
    assert view["observables"]
    answer = running.post("/api/theory", {"view": view}).json
    if not about["has_theory"]:
        assert answer["series"] == []
        assert "experiment" in answer["note"]
        return
    assert [s["observable"] for s in answer["series"]] == view["observables"]
    assert answer["not_converged"] == 0
    declared = sv.create(id).observables()
    for series in answer["series"]:
        values = np.asarray(series["values"], float)
        own = [len(answer["coordinates"][d]) for d in series["dims"] if not view["x"] or d != view["x"]["field"]]
        assert values.shape == (*([60] if view["x"] else []), *own)
        observable = declared[series["observable"]]
        assert np.all((values >= observable.low - 1e-9) & (values <= observable.high + 1e-9))


@pytest.mark.parametrize("id", IDS)
def test_a_small_simulation_lands_on_the_page(running, id):
    kind = sv.model_class(id)
    small = {**kind.guard.values, **kind.guard.simulated_values}
    size = kind.guard.size or kind.typical_sizes[0]
    ran = running.simulated({"model": id, "seeds": 2, "values": small, "sizes": [size], "simulated": 2})
    assert ran.last[0] == "done", ran.last
    model = sv.create(id, **small)
    assert {p["observable"] for p in ran.points.values()} == {n for n, o in model.observables().items() if o.simulated}
    assert ("agreement" in [kind for kind, _ in ran.events]) == model.has_theory


@pytest.mark.parametrize("id", IDS)
def test_the_first_view_can_be_exported(running, id):
    view = running.get(f"/api/models/{id}").json["default_view"]
    about = running.post("/api/reproduce", {"view": view}).json
    compile(about["python"], id, "exec")
    assert f"model={id}" in about["link"]
    assert about["shell"].startswith("solvable ")
