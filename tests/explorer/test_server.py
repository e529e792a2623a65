"""Requests of the page: models, curves, files. Messages are those of the command line."""

import itertools
import json
import random
import re
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from running import Running

import solvable as sv
from commands import answer as command
from solvable.explorer import theory as theories_of_page
from solvable.explorer.describe import prose
from solvable.explorer.early import Early
from solvable.explorer.gallery import models
from solvable.explorer.theory import compute, needed
from solvable.explorer.views import View
from waiting import LONG, until

RIDGE = {"loss": "square", "teacher": "linear"}
SQUARE = {"model": "perceptron", "values": RIDGE, "x": {"field": "samples", "from": 0.2, "to": 8}}
TOY = {"model": "toy", "x": {"field": "samples", "from": 0.5, "to": 8, "points": 7}}


def theory(running, view, stream="s", sequence=1, **more):
    return running.post("/api/theory", {"view": view | more, "stream": stream, "sequence": sequence})


def test_the_gallery_lists_every_registered_model(running):
    reply = running.get("/api/models").json
    assert [m["id"] for m in reply["models"]] == list(sv.listings())
    assert {"perceptron", "toy"} <= set(sv.listings())  # also those of other packages
    assert reply["study"] is None
    assert reply["version"] == sv.__version__
    assert {m["badge"] for m in reply["models"]} == {"theory and simulation", "experiment", "other"}
    assert reply["models"] == models()["models"]


def test_a_description_has_numbers_as_numbers_and_symbols_as_mathml(running):
    reply = running.get("/api/models/perceptron").json
    fields = {f["name"]: f for f in reply["fields"]}
    assert fields["samples"]["default"] == 2.0
    assert fields["samples"]["span"] == [0.1, 10.0]
    assert fields["samples"]["low_open"] is True
    assert fields["samples"]["counts"] is True
    assert fields["samples"]["symbol_mathml"].startswith("<math")
    assert fields["loss"]["options"] == ["square", "logistic", "hinge"]
    bayes = next(o for o in reply["observables"] if o["name"] == "bayes_error")
    assert bayes["exists_when"] == {"teacher": ["sign"]}
    assert reply["has_theory"]
    assert not reply["has_branches"]
    assert reply["references"][1]["url"] == "https://arxiv.org/abs/2102.08127"
    assert '<div class="equation"><div class="parts"><math display="block"><mi>V</mi>' in reply["about_html"]
    assert "<strong>Data.</strong>" in reply["about_html"]


def test_whole_number_choices_keep_their_bounds(running):
    fields = {f["name"]: f for f in running.get("/api/models/soft-committee").json["fields"]}
    assert fields["students"]["default"] == 2
    assert (fields["students"]["low"], fields["students"]["high"]) == (1, 64)
    assert fields["students"]["options"] is None


def test_html_in_a_docstring_is_shown_and_not_run():
    shown = prose("a <script>alert(1)</script> `<b>`")
    assert "<script" not in shown
    assert "<code>&lt;b&gt;</code>" in shown
    assert re.sub(r"<[^>]*>", "", shown).replace("&lt;", "<").replace("&gt;", ">") == "a <script>alert(1)</script> <b>"
    shown = prose("- one\n- two *x*\n\n    y = <z>w")
    assert shown.startswith(
        '<ul><li>one</li><li>two <em>x</em></li></ul>\n<div class="equation"><math display="block">'
    )
    assert shown.endswith("<mo>&lt;</mo><mi>z</mi><mo>&gt;</mo><mi>w</mi></math></div>")


def test_a_curve_is_the_theory_of_the_model(running):
    reply = theory(running, SQUARE, observables=["test_loss", "overlap"]).json
    x = np.geomspace(0.2, 8, 60)
    exact = sv.Perceptron(**RIDGE, samples=x).theory()
    assert reply["x"] == {"field": "samples", "values": x.tolist()}
    assert [s["observable"] for s in reply["series"]] == ["test_loss", "overlap"]
    for series in reply["series"]:
        np.testing.assert_allclose(series["values"], exact[series["observable"]], rtol=1e-12, atol=0)
        assert series["dims"] == ["samples"]
        assert all(series["converged"])
    assert reply["not_converged"] == 0


def test_a_plane_has_x_first_and_then_y(running):
    reply = theory(
        running, SQUARE, y={"field": "penalty", "from": 0.1, "to": 1, "points": 3}, observables=["overlap"]
    ).json
    x, y = np.geomspace(0.2, 8, 60), np.geomspace(0.1, 1, 3)
    exact = sv.Perceptron(**RIDGE, samples=x[:, None], penalty=y[None, :]).theory().overlap
    assert reply["series"][0]["dims"] == ["samples", "penalty"]
    np.testing.assert_allclose(reply["series"][0]["values"], exact, rtol=1e-12, atol=0)


def test_transition_lines_come_with_a_plane(running):
    reply = theory(running, TOY, y={"field": "penalty", "from": 0, "to": 2, "points": 3}).json
    x = np.geomspace(0.5, 8, 7)
    assert reply["lines"] == [{"name": "<i>line</i>", "x": x.tolist(), "y": (1 + x).tolist()}]
    assert theory(running, TOY).json["lines"] == []


def test_an_observable_with_its_own_dimension_brings_its_coordinate(running):
    reply = theory(running, {"model": "toy", "values": {"terms": 4}}, observables=["curve"]).json
    assert reply["series"][0]["dims"] == ["time"]
    assert reply["x"] == {"field": "time", "values": [0.0, 0.5, 1.0, 1.5]}
    assert reply["coordinates"] == {"time": [0.0, 0.5, 1.0, 1.5]}
    swept = theory(running, TOY, observables=["curve"]).json
    assert swept["series"][0]["dims"] == ["samples", "time"]
    assert np.shape(swept["series"][0]["values"]) == (7, 3)
    assert swept["x"]["field"] == "samples"


def test_a_theory_that_needs_drawn_data_reports_it(running):
    reply = theory(running, {"model": "soft-committee", "values": {"start": "random"}}).json
    assert reply["series"] == []
    assert "needs a random draw" in reply["note"]


def test_unconverged_values_are_null_and_counted(running):
    reply = theory(running, {"model": "toy", "x": {"field": "penalty", "from": 0, "to": 10, "points": 11}}).json
    error = reply["series"][0]
    assert [v is None for v in error["values"]] == [False] * 6 + [True] * 5
    assert error["converged"] == [True] * 6 + [False] * 5
    assert reply["not_converged"] == 5
    assert reply["partly"] == 0


def test_branches_are_separate_series(running):
    view = {"model": "toy", "x": {"field": "penalty", "from": 0, "to": 2, "points": 3}, "observables": ["test_error"]}
    first, second = theory(running, view, branches=True).json["series"]
    assert (first["branch"], second["branch"]) == (0, 1)
    assert first["values"] == theory(running, view).json["series"][0]["values"]
    assert second["values"] == [first["values"][0] + 1, None, None]
    assert second["converged"] == [True, False, False]


def test_the_same_view_is_computed_once(running):
    def ask(observable):
        reply = theory(running, TOY, values={"penalty": 0.123}, observables=[observable]).json
        return reply["cached"], reply["series"]

    first, again, curve = ask("test_error"), ask("test_error"), ask("curve")
    assert (first[0], again[0]) == (False, True)
    assert first[1] == again[1]
    assert (curve[0], ask("curve")[0], ask("test_error")[0]) == (False, True, True)


def test_numbers_do_not_wait_for_curves():
    numbers = View.checked({"model": "masked-regression", "observables": ["test_loss"]})
    curves = View.checked({"model": "masked-regression", "observables": ["test_loss", "spectrum"]})
    assert "train_loss" in needed(numbers)
    assert "spectrum" not in needed(numbers)
    assert needed(curves) is None
    assert needed(View.checked({"model": "perceptron"})) is None  # one program where there is nothing to leave out


def test_neither_values_nor_points_nor_the_swept_control_compile_again(traces):
    base = {"model": "perceptron", "values": RIDGE}
    compute(View.checked({**base, "x": {"field": "samples", "points": 60}}))
    before = len(traces)
    for changes in ({"points": 50}, {"points": 33}, {"from": 0.3}, {"field": "penalty"}, {"field": "noise"}):
        compute(View.checked({**base, "x": {"field": "samples", "points": 60} | changes}))
    compute(View.checked({**base, "x": {"field": "samples"}, "y": {"field": "penalty", "points": 7}}))
    compute(View.checked({"model": "perceptron", "values": base["values"] | {"noise": 0.7}, "x": {"field": "samples"}}))
    assert len(traces) == before


@pytest.fixture
def held(monkeypatch):
    """Theories wait until they are released."""
    go, begun = threading.Event(), []

    def wait(view, wanted=lambda: True):
        begun.append(view.json()["values"])
        assert go.wait(LONG)
        return compute(view, wanted)

    monkeypatch.setattr("solvable.explorer.theory.compute", wait)
    yield SimpleNamespace(go=go.set, begun=begun)
    go.set()


def test_a_request_overtaken_by_a_newer_one_is_not_computed(fresh, held):
    def ask(stream, sequence, penalty):
        return theory(fresh, TOY, stream, sequence, values={"penalty": penalty})

    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(ask, "a", 1, 0.1)
        until(lambda: held.begun)
        older = pool.submit(ask, "b", 1, 0.2)
        until(lambda: fresh.explorer.theories._open == 2)
        newer = pool.submit(ask, "b", 2, 0.3)
        until(lambda: fresh.explorer.theories._open == 3)
        held.go()
        assert [f.result().status for f in (first, older, newer)] == [200, 409, 200]
    assert older.result().json == {"error": "stale", "stale": True, "sequence": 1}
    assert held.begun == [{"penalty": 0.1}, {"penalty": 0.3}]


def test_status_reports_first_compilations(fresh, held):
    assert fresh.get("/api/status").json == {"compiling": []}
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(theory, fresh, TOY)
        until(lambda: held.begun)
        assert [c["model"] for c in fresh.get("/api/status").json["compiling"]] == ["toy"]
        held.go()
        assert asked.result().status == 200
    assert fresh.get("/api/status").json == {"compiling": []}


def test_compiled_views_do_not_wait_for_compilations(fresh, monkeypatch):
    assert theory(fresh, TOY).status == 200
    go = threading.Event()
    real = compute
    monkeypatch.setattr(
        "solvable.explorer.theory.compute",
        lambda view, wanted: (go.wait(LONG) if view.model.kind == "odd" else None, real(view, wanted))[1],
    )
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(theory, fresh, TOY, "a", 1, values={"kind": "odd"})
        until(lambda: fresh.get("/api/status").json["compiling"])
        assert theory(fresh, TOY, "b", 1, values={"penalty": 0.77}).status == 200
        assert not other.done()
        go.set()
        assert other.result().status == 200


def test_a_draft_comes_before_the_program_and_is_replaced_by_its_curve(fresh):
    view = {"model": "perceptron", "values": RIDGE, "x": {"field": "samples", "points": 12}}
    first = fresh.post("/api/theory", {"view": view, "draft": True}).json
    assert (first["draft"], first["cached"], first["coarse"]) == (True, False, 0)
    assert fresh.explorer.theories.kept(View.checked(view)) is None  # nothing is exported from it
    exact = fresh.post("/api/theory", {"view": view}).json
    assert not exact["draft"]
    for one, other in zip(first["series"], exact["series"], strict=True):
        assert one["values"] == pytest.approx(other["values"], rel=1e-9)
    theories = fresh.explorer.theories
    assert (len(theories._known), theories._drafts) == (1, {})  # forgotten, once there is the program
    moved = {**view, "values": view["values"] | {"noise": 0.2}}
    assert not fresh.post("/api/theory", {"view": moved, "draft": True}).json["draft"]


def test_the_compiler_knows_the_options_of_a_draft():
    view = View.checked({"model": "perceptron", "values": RIDGE, "x": None})
    assert isinstance(theories_of_page.draft_for(view.model, view), jax.stages.Compiled)


def test_the_program_is_compiled_after_a_draft_unless_its_model_is_left(fresh):
    view = {"model": "toy", "values": {"terms": 4}}
    theories = fresh.explorer.theories
    assert fresh.post("/api/theory", {"view": view, "draft": True}).json["draft"]
    until(lambda: theories.kept(View.checked(view)) is not None)
    other = View.checked({"model": "toy", "values": {"terms": 5}})
    theories.look_at(next(iter(theories._looked_at)), "perceptron")
    assert theories.submit(other, lambda: True, draft=True).result().draft
    until(lambda: theories._pending[theories_of_page.program(other)].done())
    assert theories_of_page.program(other) not in theories._known


def test_a_slow_curve_gets_a_coarse_program_in_the_background(fresh, monkeypatch):
    monkeypatch.setattr("solvable.explorer.theory.SLOW", 1e9)
    wide = {**TOY, "x": {**TOY["x"], "points": 60}}
    assert theory(fresh, wide).json["coarse"] == 0
    monkeypatch.setattr("solvable.explorer.theory.SLOW", 0.0)
    moved = itertools.count(1)  # the first call includes compilation: later curves show how slow the theory is
    until(lambda: theory(fresh, wide, values={"penalty": 0.5 + 0.001 * next(moved)}).json["coarse"])
    assert theory(fresh, TOY | {"x": None}).json["coarse"] == 0


def test_opening_a_model_compiles_its_first_view(surroundings):
    server = Running(warm=True)
    try:
        view = server.get("/api/models/toy").json["default_view"]
        until(lambda: server.explorer.theories.kept(View.checked(view)) is not None)
        assert server.post("/api/theory", {"view": view}).json["cached"]
        until(lambda: server.explorer.jobs.process is not None)
    finally:
        server.close()


def test_the_first_curve_of_a_later_server_needs_no_program(monkeypatch, tmp_path):
    view, servers = {"model": "random-labels", "values": {"samples": 0.2}, "x": None, "observables": ["train_loss"]}, []
    asked = []
    try:
        servers.append(Running(early=Early(tmp_path)))
        about = servers[0].get("/api/models/random-labels").json
        first = servers[0].post("/api/theory", {"view": view, "sequence": 1}).json
        monkeypatch.setattr("solvable.explorer.app.are_done", lambda: False)
        monkeypatch.setattr("solvable.explorer.app.heavy_imports", lambda: asked.append(1) or time.sleep(0.1))
        servers.append(Running(early=Early(tmp_path)))
        assert servers[1].get("/api/models/random-labels").json == about
        again = servers[1].post("/api/theory", {"view": view, "sequence": 7}).json
        assert again == first | {"sequence": 7, "cached": True}
        until(
            lambda: servers[1].explorer.theories.kept(View.checked(view)) is not None
        )  # and is then computed all the same
        assert servers[1].post("/api/theory", {"view": view | {"model": "none"}}).status == 422
        monkeypatch.setattr("solvable.explorer.early.stamp", lambda: "another source")
        assert Early(tmp_path).read("model", "random-labels") is None
    finally:
        for server in servers:
            server.close()


def test_claims_are_judged_once_for_all_servers(surroundings, monkeypatch, tmp_path):
    servers = [Running(early=Early(tmp_path))]
    try:
        found = servers[0].get("/api/models/narrow-network/claims").json
        assert found["claims"]

        async def again(jobs, id):
            raise AssertionError("judged again")

        monkeypatch.setattr("solvable.explorer.jobs.Jobs.judged", again)
        servers.append(Running(early=Early(tmp_path)))
        assert servers[1].get("/api/models/narrow-network/claims").json == found
        assert servers[1].get("/api/models/perceptron/claims").status == 500
    finally:
        for server in servers:
            server.close()


def test_kept_answers_are_few_and_small_and_damaged_ones_are_ignored(monkeypatch, tmp_path):
    monkeypatch.setattr("solvable.explorer.early.MOST", 3)
    kept = Early(tmp_path)
    for number in range(5):
        kept.write("theory", number, {"number": number}, "perceptron")
    assert len(list(tmp_path.iterdir())) == 3
    assert kept.read("theory", 4) == {"number": 4}
    kept.write("theory", 5, {"number": 5}, "a model of another package")
    kept.write("theory", 6, {"long": "x" * 2**21}, "perceptron")
    assert kept.read("theory", 5) is kept.read("theory", 6) is None
    for file in tmp_path.iterdir():
        file.write_text('{"number": ')
    assert kept.read("theory", 4) is None


def test_the_worker_is_started_before_a_model_is_opened(surroundings):
    server = Running(warm=True)
    try:
        until(lambda: server.explorer.jobs.process is not None)
    finally:
        server.close()


BAD = [
    ("samples=-1", {"samples": -1}),
    ("samples=words", {"samples": "words"}),
    ("samples=1e999", {"samples": float("inf")}),
    ("loss=cubic", {"loss": "cubic"}),
    ("losss=hinge", {"losss": "hinge"}),
    ("penalty=0", {"penalty": 0}),
    ("noise=-0.5", {"noise": -0.5}),
    ("teacher=linear", {"teacher": "linear"}),
]


@pytest.mark.parametrize(("words", "values"), BAD, ids=[w for w, _ in BAD])
def test_a_bad_value_gets_the_sentence_of_the_command_line(running, capsys, words, values):
    _, out, _ = command(capsys, "theory", "perceptron", words, "--json")
    body = json.dumps({"view": {"model": "perceptron", "values": values}}).replace("Infinity", "1e999")
    reply = running.ask(
        "POST", "/api/theory", body.encode(), {"Content-Type": "application/json", "Origin": running.origin}
    )
    assert reply.status == 422
    assert reply.error == json.loads(out)["error"]
    first = reply.error.split(" ")[0]
    assert reply.json["field"] == (first if first in sv.Perceptron.fields() else None)


def test_a_bad_axis_gets_the_sentence_of_the_command_line(running, capsys):
    _, out, _ = command(capsys, "study", "perceptron", "--over", "samples=-1.0:2.0:5", "--json")
    reply = theory(running, SQUARE, x={"field": "samples", "from": -1.0, "to": 2.0, "points": 5, "scale": "linear"})
    assert (reply.status, reply.error, reply.json["field"]) == (422, json.loads(out)["error"], "x")
    _, out, _ = command(capsys, "study", "perceptron", "--over", "samples=-1.0:2.0:5:log", "--json")
    reply = theory(running, SQUARE, x={"field": "samples", "from": -1.0, "to": 2.0, "points": 5, "scale": "log"})
    assert (reply.status, reply.error) == (422, json.loads(out)["error"])


def test_bad_sizes_and_seeds_get_the_sentence_of_the_command_line(running, capsys):
    for words, view in (
        (("--size", "1"), {"sizes": [1]}),
        (("--size", "20000000"), {"sizes": [20000000]}),
        (("--size", "50", "--seeds", "0"), {"sizes": [50], "seeds": 0}),
    ):
        _, out, _ = command(capsys, "study", "perceptron", *words, "--json")
        reply = running.post("/api/simulate", {"view": {"model": "perceptron", **view}})
        assert (reply.status, reply.error) == (422, json.loads(out)["error"])


ODD = [
    None, [], 7, "x", {}, {"model": 3}, {"model": "no-such"},
    {"model": "many-body", "values": {"colours": 10, "sites": 12}},
    {"model": "soft-committee", "values": {"times": [1, [2]]}},
    {"model": "soft-committee", "values": {"times": [3, 1]}},
]  # fmt: skip
ODD += [
    {"model": "perceptron", **part}
    for part in (
        {"valuess": {}}, {"values": []}, {"values": {"samples": [1, 2]}}, {"values": {"samples": None}},
        {"values": {"samples": {"a": 1}}}, {"values": {"samples": True}}, {"values": {"samples": 10**400}},
        {"x": "samples"}, {"y": {"field": "samples"}}, {"x": {"field": "samples"}, "y": {"field": "samples"}},
        {"x": {"field": "samples", "points": 1000}, "y": {"field": "penalty", "points": 1000}},
        {"observables": ["nope"]}, {"observables": "test_error"}, {"observables": [1]}, {"branches": 1},
        {"sizes": 50}, {"sizes": [50, 20]}, {"sizes": [2.5]}, {"sizes": list(range(2, 40))},
        {"seeds": -1}, {"seeds": 10**9}, {"seeds": "8"}, {"simulated": 0}, {"simulated": "1"}, {"study": True},
    )
]  # fmt: skip
ODD += [
    {"model": "perceptron", "x": {"field": "samples", **axis}}
    for axis in (
        {"field": "loss"}, {"field": 3}, {"field": "nope"}, {"points": 1}, {"points": 10**9}, {"points": 2.5},
        {"points": True}, {"scale": "cubic"}, {"from": "1"}, {"from": 2, "to": 2}, {"to": 10**400}, {"to": 1e300},
    )
]  # fmt: skip


@pytest.mark.parametrize("view", ODD, ids=[json.dumps(v)[:70] for v in ODD])
def test_an_invalid_view_is_refused_in_one_sentence(running, view):
    for path in ("/api/theory", "/api/reproduce"):
        reply = running.post(path, {"view": view})
        assert reply.status == 422
        assert reply.error.strip()
        assert "\n" not in reply.error
        assert len(reply.error) <= 600
        assert "Traceback" not in reply.error


def test_exported_files_hold_the_shown_view(running):
    import csv
    import io

    import xarray as xr

    curve = theory(running, SQUARE, observables=["test_loss"]).json["series"][0]["values"]
    reply = running.post("/api/export", {"view": SQUARE, "format": "csv", "job": None})
    assert reply.headers["content-disposition"] == 'attachment; filename="perceptron.csv"'
    rows = list(csv.DictReader(io.StringIO(reply.body.decode())))
    assert [float(r["test_loss"]) for r in rows] == curve
    reply = running.post("/api/export", {"view": SQUARE, "format": "nc"})
    with xr.open_dataset(io.BytesIO(reply.body), engine="scipy") as data:
        assert data.test_loss_theory.values.tolist() == curve


@pytest.mark.parametrize(("format", "begin"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_pictures_are_drawn_by_our_own_plotting(running, format, begin):
    reply = running.post("/api/export", {"view": {**TOY, "observables": ["test_error"]}, "format": format})
    assert reply.status == 200
    assert reply.body.startswith(begin)
    assert len(reply.body) > 4000
    assert f'filename="toy.{format}"' in reply.headers["content-disposition"]


def test_a_failed_export_says_why(running):
    assert "there is no export to 'exe'" in running.post("/api/export", {"view": SQUARE, "format": "exe"}).error
    experiment = running.post("/api/export", {"view": {"model": "rooted-trees"}, "format": "csv"})
    assert "no closed theory" in experiment.error
    assert running.post("/api/export", {"view": SQUARE, "format": "csv", "job": "nobody"}).status == 422
    assert "branches" in running.post("/api/export", {"view": {**SQUARE, "branches": True}, "format": "csv"}).error


def test_the_page_and_its_script_are_served(running):
    assert running.get("/").status == 200
    assert running.get("/").headers["content-type"].startswith("text/html")
    script = running.get("/plotly.js")
    assert script.status == 200
    assert len(script.body) > 1_000_000
    again = running.ask("GET", "/plotly.js", None, {"If-None-Match": script.headers["etag"]})
    assert (again.status, again.body) == (304, b"")
    assert running.ask("GET", "/plotly.js", None, {"If-None-Match": '"an older one"'}).status == 200


def test_the_claims_of_a_model_come_with_their_verdicts(running):
    from solvable.lab.ledger import ledger

    shown = running.get("/api/models/masked-regression/claims").json["claims"]
    assert [c["verdict"] for c in shown] == [e.judged.verdict for e in ledger("masked-regression")]
    assert all(c["numbers"] or c["verdict"] == "open" for c in shown)
    assert all(c["sentence_html"].startswith("<p>") for c in shown)
    assert running.get("/api/models/soft-committee/claims").json == {"claims": []}
    assert running.get("/api/models/nonsense/claims").status == 404


# --- what is left behind ----------------------------------------------------------------------------------------------


@pytest.fixture
def glanced(fresh, monkeypatch):
    """Curves with penalties above 5 wait for `release`; `computed` lists the penalties of all curves."""
    from solvable.explorer import theory

    real, release, computed = theory.compute, threading.Event(), []

    def compute(view, wanted=lambda: True):
        computed.append(float(view.model.penalty))
        if view.model.penalty > 5:
            assert release.wait(LONG)
        return real(view, wanted)

    monkeypatch.setattr(theory, "compute", compute)
    yield SimpleNamespace(server=fresh, release=release, computed=computed)
    release.set()


def view_of(penalty, terms):
    """Another number of terms is another program."""
    return {"model": "toy", "x": {"field": "samples", "points": 8}, "values": {"penalty": penalty, "terms": terms}}


def left_alone(server, view):
    """Ask for a curve and close the connection."""
    body = json.dumps({"view": view, "stream": str(random.random()), "sequence": 1}).encode()
    head = (
        f"POST /api/theory HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nCookie: {server.session}\r\n"
        f"Origin: {server.origin}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=LONG)
    connection.sendall(head.encode() + body)
    return connection


def test_the_model_that_is_looked_at_does_not_wait_for_one_that_was_left(glanced):
    with left_alone(glanced.server, view_of(6.0, 1)):
        until(lambda: 6.0 in glanced.computed)
    assert glanced.server.post("/api/theory", {"view": view_of(1.0, 2)}).status == 200
    assert not glanced.release.is_set()


def test_curves_that_were_left_are_not_computed(glanced):
    glances = [left_alone(glanced.server, view_of(6.0 + k / 8, k)) for k in (1, 2)]  # both threads are busy
    until(lambda: len(glanced.computed) == 2)
    glances += [left_alone(glanced.server, view_of(7.0 + k / 8, k)) for k in (3, 4, 5)]
    until(lambda: glanced.server.explorer.theories._open == 5)
    for glance in glances:
        glance.close()
    until(lambda: not glanced.server.server.server_state.connections)
    glanced.release.set()
    assert glanced.server.post("/api/theory", {"view": view_of(1.0, 5)}).status == 200
    assert sorted(glanced.computed) == [1.0, 6.125, 6.25]


def test_a_program_that_is_being_compiled_is_not_compiled_twice(glanced):
    theories = glanced.server.explorer.theories

    first = theories.submit(View.checked(view_of(6.0, 1)), lambda: True)
    until(lambda: 6.0 in glanced.computed)
    second = theories.submit(View.checked(view_of(1.0, 1)), lambda: True)
    gone = theories.submit(View.checked(view_of(2.0, 1)), lambda: False)
    assert glanced.server.post("/api/theory", {"view": view_of(1.0, 2)}).status == 200  # its thread is free
    assert glanced.computed == [6.0, 1.0]
    glanced.release.set()
    assert first.result(LONG).compiled
    assert not second.result(LONG).compiled
    assert type(gone.exception(LONG)).__name__ == "Stale"
