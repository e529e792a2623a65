"""Every kind of model that the contract supports passes through check, study, store, sweep, plot and page."""

import json
import os
import shutil
import sys
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
import pytest

import solvable as sv
from commands import answer
from explorer.running import Running
from solvable.lab.agreement import Agreement, compare_random, judge
from solvable.lab.check_models import check_models
from solvable.registry import listings
from solvable.testing import examine_model, guard_model

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def kinds(tmp_path_factory):
    """The models, registered as by another package."""
    site = tmp_path_factory.mktemp("kinds")
    metadata = site / "kinds-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: kinds\nVersion: 1.0\n")
    shutil.copy(HERE / "kinds.py", site)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(site))
        sys.modules.pop("kinds", None)
        import kinds

        lines = "".join(f"{k.id} = kinds:{k.__name__}\n" for k in kinds.KINDS)
        (metadata / "entry_points.txt").write_text(f"[solvable.models]\n{lines}")
        patch.setenv("PYTHONPATH", os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")]))
        listings.cache_clear()
        yield kinds
    sys.modules.pop("kinds", None)
    listings.cache_clear()


@pytest.fixture
def page(kinds):
    server = Running()
    yield server
    server.close()


IDS = ("kind-two-times", "kind-random-limit", "kind-graph", "kind-experiment", "kind-kept")


@pytest.mark.parametrize("id", IDS)
def test_a_kind_keeps_its_contract_and_agrees_with_its_theory(kinds, id):
    kind = sv.model_class(id)
    for findings in (examine_model(kind, thorough=False), guard_model(kind)):
        assert [str(f) for f in findings if not f.kept] == []
    rows = [row for row in check_models([id]) if row.part not in ("reference values", "agreement: inconclusive")]
    assert [(row.part, row.seen) for row in rows if not row.passed] == []


@pytest.mark.parametrize("id", IDS)
def test_a_kind_is_studied_stored_opened_and_swept(kinds, id, tmp_path, capsys):
    model = sv.create(id)
    arms = dict(type(model).arms_declared)
    study = sv.Study(model, arms=arms, sizes=[20], seeds=3)
    computed = study.run(tmp_path / "run", progress=False)
    again = sv.open(tmp_path / "run")
    assert again.missing() == 0
    assert again.specification() == study.specification()
    assert again.dataset().equals(computed)
    for name, dim in study.dimensions().items():
        if name in computed.coords:
            assert computed.coords[name].attrs["kind"] == dim.kind
    words = ["sweep", "run", tmp_path / "swept", id, "--size", 20, "--seeds", 3, "--workers", 1, "--json"]
    words += ["--arms"] if arms else []
    assert json.loads(answer(capsys, *words)[1])["cells"]["done"] == study.number_of_cells()
    swept = sv.open(tmp_path / "swept").dataset()
    for name in computed.data_vars:
        np.testing.assert_array_equal(swept[name], computed[name])


@pytest.mark.parametrize("id", IDS)
def test_a_kind_is_drawn(kinds, id):
    model = sv.create(id)
    over = {"kind-random-limit": {"spread": [0.2, 0.5, 1.0]}, "kind-kept": {"bias": [0.2, 0.5, 0.8]}}.get(id, {})
    study = sv.Study(model, over, arms=dict(type(model).arms_declared), sizes=[20], seeds=6)
    study.run(progress=False)
    figure = study.plot()
    axis = figure.axes[0]
    assert axis.lines or axis.containers
    if study.arms:  # an experiment, which has no lines of a theory to label
        assert {f"arm {name}" for name in study.arms} <= set(axis.get_legend_handles_labels()[1])
    if id == "kind-two-times":
        assert axis.get_xscale() == "log"
        assert axis.get_xlabel() == "time $t$"
        labels = axis.get_legend_handles_labels()[1]
        assert sum("waiting" in text for text in labels) == 5  # of nine
        whole = study.plot("correlation", as_map=True).axes[0]
        assert (whole.get_xlabel(), whole.get_ylabel()) == ("time $t$", "waiting $t'$")
        assert whole.get_xscale() == whole.get_yscale() == "log"
        assert whole.collections
    plt.close("all")


@pytest.mark.parametrize("id", IDS)
def test_a_kind_has_its_page(kinds, page, id):
    kinds.CALLS.clear()
    about = page.get(f"/api/models/{id}").json
    declared = {d.name: d for d in sv.model_class(id).dimensions_declared}
    assert {n: about["dimensions"][n]["kind"] for n in declared} == {n: d.kind for n, d in declared.items()}
    answer = page.post("/api/theory", {"view": about["default_view"]}).json
    if id == "kind-kept":
        assert "takes minutes" in answer["note"]
        assert kinds.CALLS == []
    elif id == "kind-experiment":
        assert "no closed theory" in answer["note"]
    else:
        series = answer["series"][0]
        assert np.shape(series["values"]) == tuple(
            len(answer["x"]["values"]) if d == (answer["x"] or {}).get("field") else len(answer["coordinates"][d])
            for d in series["dims"]
        )
        assert ("quantile" in series["dims"]) == (id == "kind-random-limit")


def test_a_stored_theory_is_computed_once_per_point_and_never_for_drawing(kinds):
    kinds.CALLS.clear()
    study = sv.Study(kinds.Slow(), {"bias": [0.2, 0.4, 0.6, 0.8]}, sizes=[20], seeds=3)
    study.run(progress=False)
    study.agreement()
    study.plot()
    plt.close("all")
    jax.effects_barrier()
    assert sorted(kinds.CALLS) == [0.2, 0.4, 0.6, 0.8]
    kinds.CALLS.clear()
    examine_model(kinds.Slow)
    jax.effects_barrier()
    assert len(kinds.CALLS) <= 3  # the contract at the defaults, and beside a realisation


def test_typed_data_keep_their_types(kinds):
    walk = kinds.Walk()
    assert walk.bonds.indices.dtype == np.int32
    assert walk.start.dtype == bool
    matrix = np.zeros((4, 4))
    for i, row in enumerate([[1, 2, 3], [0, 2], [0, 1], [0]]):
        matrix[i, row] = 1
    same = kinds.Walk(bonds=matrix)
    assert same.specification() == walk.specification()
    heavier = kinds.Walk(bonds={"edges": [[0, 1], [0, 2], [0, 3], [1, 2]], "values": [1, 1, 1, 2.0], "nodes": 4})
    assert heavier.specification() != walk.specification()
    assert heavier.key(10, 0) != walk.key(10, 0)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"bonds": [[1], []]}, "bonds is not undirected"),
        ({"bonds": {"edges": [[0, 0]]}}, "bonds has a loop"),
        ({"bonds": {"edges": [[0, 4]], "nodes": 4}}, "bonds names a node outside"),
        ({"bonds": "nonsense"}, "bonds is not a graph"),
        ({"start": [1, 0, 0.5, 0]}, "start = .* is not an array of truth values"),
        ({"start": [1, 0, 0]}, "start has 3 entries along 'node' instead of 4"),
    ],
)
def test_wrong_data_are_refused_in_one_sentence(kinds, values, sentence):
    with pytest.raises(sv.InvalidValue, match=sentence):
        kinds.Walk(**values)


@pytest.mark.parametrize(("shift", "verdict"), [(0.0, "agree"), (0.5, "disagree")])
def test_random_limits_are_distinguished_by_their_law(shift, verdict):
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(1, 2, 4000))
    seen = rng.normal(size=(1, 2, 400)) + shift
    rows = judge(compare_random("x", [{}], seen, draws, np.array([100, 400]), power=1.0))
    assert Agreement(tuple(rows), (100, 400)).verdict == verdict


def test_a_random_limit_that_differs_by_the_declared_power_is_a_finite_size_effect():
    rng = np.random.default_rng(1)
    sizes = np.array([100, 400])
    draws = rng.normal(size=(1, 2, 20000))
    seen = rng.normal(size=(1, 2, 2000)) + (60.0 / sizes)[None, :, None]
    rows = judge(compare_random("x", [{}], seen, draws, sizes, power=1.0))
    assert rows[0].verdict == "finite-size"
    few = judge(compare_random("x", [{}], seen[:, :, :10] - (60.0 / sizes)[None, :, None], draws, sizes, power=1.0))
    assert few[0].verdict == "inconclusive"
