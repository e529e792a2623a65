"""Every registered model on the page: its description, its first curve, a small simulation."""

import numpy as np
import pytest

import solvable as sv
from solvable.models import LISTINGS

IDS = [line.id for line in LISTINGS]
# Small enough for a page's test; a model that is not mentioned runs at the smallest of its typical sizes.
SIMULATED = {
    "masked-language": {"values": {"steps": 5, "sites": 6, "colours": 3}, "sizes": [50]},
    "rooted-trees": {"values": {"steps": 2}, "sizes": [500]},
    "layer-defrosting": {"values": {"steps": 2, "depth": 1, "units": 4, "samples": 1.0}, "sizes": [10]},
    "short-sequences": {"values": {"sites": 4, "colours": 2, "depth": 1, "steps": 4, "networks": 1}, "sizes": [100]},
    "long-sequences": {
        "values": {
            "sites": 5,
            "colours": 2,
            "groups": 3,
            "fitted": 300,
            "fit_steps": 3,
            "tested": 50,
            "depth": 1,
            "steps": 2,
            "heads": 1,
            "width": 2,
            "networks": 1,
            "batch": 8,
            "orders": 1,
        },
        "sizes": [100],
    },
    "many-body": {"values": {"depth": 0, "sites": 3, "colours": 2, "bodies": 2}, "sizes": [100]},
    "soft-committee": {"values": {"times": [0.0, 1.0]}, "sizes": [20]},
    "masked-regression": {"sizes": [20]},
    "potts-attention": {"sizes": [20]},
}


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
    small = SIMULATED.get(id, {"sizes": [sv.model_class(id).typical_sizes[0]]})
    ran = running.simulated({"model": id, "seeds": 2, **small})
    assert ran.last[0] == "done", ran.last
    model = sv.create(id, **small.get("values", {}))
    assert {p["observable"] for p in ran.points.values()} == {n for n, o in model.observables().items() if o.simulated}
    assert ("agreement" in [kind for kind, _ in ran.events]) == model.has_theory


@pytest.mark.parametrize("id", IDS)
def test_the_first_view_can_be_exported(running, id):
    view = running.get(f"/api/models/{id}").json["default_view"]
    about = running.post("/api/reproduce", {"view": view}).json
    compile(about["python"], id, "exec")
    assert f"model={id}" in about["link"]
    assert about["shell"].startswith("solvable ")
