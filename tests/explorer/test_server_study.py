"""A stored study on the page: its dimensions, its curves and points, its files."""

import numpy as np
import pytest
from running import Running

import solvable as sv


@pytest.fixture(scope="module")
def run(surroundings, tmp_path_factory):
    from toys import Toy

    run = tmp_path_factory.mktemp("runs") / "my study"
    over = {"samples": [0.5, 1.0, 2.0], "kind": ["plain", "odd"]}
    sv.Study(Toy(penalty=0.25), over, sizes=[20, 40], seeds=3).run(run, progress=False)
    return run


@pytest.fixture(scope="module")
def opened(run):
    server = Running(sv.open(run), run)
    yield server
    server.close()


@pytest.fixture(scope="module")
def data(run):
    return sv.open(run).dataset()


def test_the_study_lists_its_dimensions(opened):
    reply = opened.get("/api/study").json
    assert reply["name"] == "my study"
    assert reply["model"] == "toy"
    assert reply["dims"] == {"samples": [0.5, 1.0, 2.0], "kind": ["plain", "odd"]}
    assert (reply["sizes"], reply["seeds"], reply["missing"]) == ([20, 40], 3, 0)
    assert reply["values"]["penalty"] == 0.25
    assert [o["name"] for o in reply["observables"]] == ["test_error", "curve", "extra"]
    assert reply["agreement"]["verdict"] in ("agree", "finite-size", "inconclusive")
    assert opened.get("/api/models").json["study"]["name"] == "my study"


def test_its_curves_and_points_are_those_of_the_dataset(opened, data):
    asked = {"x": "samples", "observables": ["test_error"], "at": {"kind": "odd"}}
    reply = opened.post("/api/study/series", asked).json
    at = data.sel(kind="odd")
    assert reply["x"] == {"field": "samples", "values": [0.5, 1.0, 2.0]}
    assert reply["series"][0]["dims"] == ["samples"]
    np.testing.assert_array_equal(reply["series"][0]["values"], at.test_error_theory.values)
    for point in reply["points"]:
        seeds = at.test_error_simulated.sel(size=point["size"]).transpose("samples", "seed").values
        np.testing.assert_allclose(point["mean"], seeds.mean(1), rtol=1e-14)
        np.testing.assert_allclose(point["error"], seeds.std(1, ddof=1) / np.sqrt(3), rtol=1e-12)


def test_an_observable_along_its_own_dimension(opened, data):
    reply = opened.post("/api/study/series", {"x": "time", "observables": ["curve"], "at": {"samples": 1.0}}).json
    assert reply["series"][0]["dims"] == ["time"]
    assert reply["coordinates"]["time"] == [0.0, 0.5, 1.0]
    here = data.curve_theory.sel(samples=1.0, kind="plain").values
    np.testing.assert_array_equal(reply["series"][0]["values"], here)
    assert np.shape(reply["points"][0]["mean"]) == (3,)


def test_missing_values_are_null(opened):
    reply = opened.post("/api/study/series", {"x": "samples", "observables": ["extra"], "at": {"kind": "plain"}}).json
    assert reply["series"] == []
    assert reply["points"][0]["mean"] == [None, None, None]


BAD = [{"x": "nope"}, {"x": 3}, {"observables": ["nope"]}, {"observables": "test_error"}, {"at": {"nope": 1}}, {"at": []},
       {"at": {"kind": "none"}}, {"x": "samples", "y": "samples"}, {"at": {"kind": [1]}}]  # fmt: skip


@pytest.mark.parametrize("asked", BAD, ids=str)
def test_a_bad_request_about_the_study_gets_one_sentence(opened, asked):
    reply = opened.post("/api/study/series", {"observables": ["test_error"], **asked})
    assert reply.status == 422
    assert "\n" not in reply.error


@pytest.mark.parametrize("format", ["csv", "nc", "png"])
def test_the_study_is_exported(opened, format):
    reply = opened.post("/api/export", {"view": {"study": True, "observables": ["test_error"]}, "format": format})
    assert reply.status == 200
    assert reply.headers["content-disposition"] == f'attachment; filename="study.{format}"'
    assert len(reply.body) > 500


def test_the_study_is_reproduced_by_opening_it(opened, data, run):
    away = opened.post("/api/reproduce", {"view": {"study": True, "model": "toy", "observables": ["test_error"]}}).json
    assert f"sv.open({str(run)!r})" in away["python"]
    assert away["shell"].startswith("solvable sweep export ")
    assert "study=1" in away["link"]
    names: dict = {}
    exec(away["python"].replace("study.plot", "None and study.plot").replace(".savefig", " or (lambda *_: 0)"), names)
    assert names["data"].equals(data)


def test_the_words_of_the_address_steer_the_exported_figure(opened, monkeypatch):
    words, seen = {"along": "samples", "lines": "kind", "log": "y"}, {}
    plot = sv.Study.plot
    monkeypatch.setattr(sv.Study, "plot", lambda self, show, **given: seen.update(given) or plot(self, show, **given))
    view = {"study": True, "model": "toy", "observables": ["test_error"], **words}
    assert opened.post("/api/export", {"view": view, "format": "png"}).status == 200
    assert seen == words
    away = opened.post("/api/reproduce", {"view": view}).json
    assert "study.plot('test_error', along='samples', lines='kind', log='y')" in away["python"]
    assert away["link"].endswith("&show=test_error&along=samples&lines=kind&log=y")


@pytest.mark.parametrize(
    "asked", [{"along": "nope"}, {"lines": 3}, {"log": "z"}, {"along": "kind", "by": "kind"}], ids=str
)
def test_wrong_words_of_the_address_get_one_sentence(opened, asked):
    reply = opened.post(
        "/api/export", {"view": {"study": True, "observables": ["test_error"], **asked}, "format": "png"}
    )
    assert reply.status == 422
    assert "\n" not in reply.error


def test_without_a_study_the_page_has_none(running):
    assert running.get("/api/study").status == 404
    assert running.post("/api/study/series", {"x": "samples"}).status == 404
    assert running.post("/api/export", {"view": {"study": True}, "format": "csv"}).status == 422


def test_blocks_committed_by_others_are_seen(surroundings, tmp_path):
    from toys import Toy

    sv.Study(Toy(), {"samples": [1.0, 2.0]}, sizes=[20], seeds=2).run(tmp_path / "run", progress=False)
    study = sv.open(tmp_path / "run")
    store = study.store
    blocks = dict(store.done())
    server = Running(study, tmp_path / "run")
    try:
        hidden = next(b for b in blocks if b in dict(study.stored_plan()))
        real = store.done
        store.done = lambda: {n: e for n, e in real().items() if n != hidden}
        assert server.get("/api/study").json["missing"] > 0
        store.done = real
        assert server.get("/api/study").json["missing"] == 0
    finally:
        server.close()


def test_the_dataset_and_its_verdict_are_kept_until_something_is_committed(surroundings, tmp_path):
    from toys import Toy

    from solvable.explorer.stored_study import StoredStudy

    study = sv.Study(Toy(), {"samples": [1.0, 2.0]}, sizes=[20], seeds=2)
    study.attach(tmp_path / "run")
    study.stored_plan()
    stored = StoredStudy(sv.open(tmp_path / "run"), tmp_path / "run")
    assert not stored.data.data_vars
    study.run(tmp_path / "run", progress=False)
    stored.refresh()
    data, verdict = stored.data, stored.agreement()
    assert data.drop_attrs().identical(study.dataset().drop_attrs())
    stored.refresh()
    assert stored.data is data
    assert stored.agreement() is verdict


@pytest.fixture
def compared(surroundings, tmp_path):
    """Three models with three penalties, and two arms."""
    from toys import Toy

    run = tmp_path / "run"
    models = {name: Toy(penalty=value) for name, value in (("weak", 0.5), ("middle", 1.0), ("strong", 1.5))}
    arms = {"plain": {"kind": "plain"}, "odd": {"kind": "odd"}}
    sv.Study(models, {"samples": [0.5, 1.0]}, arms=arms).run(run, progress=False)
    server = Running(sv.open(run), run)
    yield server
    server.close()


def test_values_that_differ_between_models_are_not_called_fixed(compared):
    reply = compared.get("/api/study").json
    assert reply["values"] == {"terms": 3, "shift": 0.0}
    assert reply["differs"]["penalty"] == {
        f"{model}, {arm}": value
        for model, value in (("weak", 0.5), ("middle", 1.0), ("strong", 1.5))
        for arm in ("plain", "odd")
    }
    assert set(reply["differs"]) == {"penalty", "kind"}
    assert {v for k, v in reply["differs"]["kind"].items() if k.endswith("odd")} == {"odd"}


def test_a_stored_theory_is_known_as_such(opened):
    reply = opened.post("/api/study/series", {"x": "samples", "observables": ["test_error"]}).json
    assert reply["series"][0]["stored"] is True


def test_a_theory_of_each_realisation_is_that_of_the_largest_size(opened, monkeypatch):
    """Not a mean over sizes, which is the theory of nothing."""
    data = opened.explorer.stored.data
    only = data.drop_vars("test_error_theory")
    monkeypatch.setattr(opened.explorer.stored, "data", only)
    (series,) = opened.explorer.stored._curve("test_error", {"kind": 0}, ["samples"], [])
    assert series["size"] == 40
    expected = data.test_error_expected.sel(kind="plain", size=40)
    expected = expected.mean("seed") if "seed" in expected.dims else expected
    np.testing.assert_allclose(series["values"], expected.values)
