"""First sight: real titles, thumbnails and words to find a model by, links, snapshots, kept figures, and room for programs."""

import json
import re
import xml.etree.ElementTree as ElementTree
from types import SimpleNamespace

import pytest

import solvable as sv
from commands import answer
from solvable.explorer.gallery import thumbnail, thumbnail_file
from solvable.models import FIGURES, LISTINGS

CURVE = {"model": "toy", "x": {"field": "samples", "from": 0.5, "to": 8, "points": 9, "scale": "log"}}
SVG = "{http://www.w3.org/2000/svg}"


# --- the gallery ------------------------------------------------------------------------------------------------------


def test_the_gallery_shows_the_declared_titles(running):
    titles = {m["id"]: m["title"] for m in running.get("/api/models").json["models"]}
    assert titles["rl-perceptron"] == "The RL perceptron"
    assert titles["xor-curriculum"] == sv.model_class("xor-curriculum").title == "Curricula for XOR and width"
    assert titles["ica"] == "Independent component analysis in high dimensions"
    assert titles["toy"] == "Toy"  # of another package, which is not imported for its title


def test_a_running_simulation_is_listed_with_its_title(fresh):
    job = fresh.post("/api/simulate", {"view": {"model": "sleepy", "values": {"delay": 600.0}, "sizes": [2]}}).json[
        "job"
    ]
    assert fresh.get("/api/jobs").json["jobs"][0]["title"] == "Sleepy"
    fresh.post(f"/api/jobs/{job}/cancel", {})


@pytest.mark.parametrize("id", [line.id for line in LISTINGS])
def test_every_model_has_a_readable_thumbnail(id):
    """`make thumbnails` makes them."""
    file = thumbnail_file(id)
    assert file is not None
    assert file.is_file(), "run make thumbnails"
    assert file.stat().st_size < 24_000
    picture = ElementTree.fromstring(file.read_text(encoding="utf-8"))
    assert picture.attrib["viewBox"] == "0 0 320 190"
    (group,) = picture.findall(f"{SVG}g")
    drawn = group.findall(f"{SVG}path")
    assert float(group.attrib["stroke-width"]) >= 4  # thick lines
    assert len(drawn) >= 2  # the axes, and something along them
    assert all(float(text.attrib["font-size"]) >= 14 for text in picture.findall(f"{SVG}text"))
    assert not [e for e in picture.iter() if e.tag not in {f"{SVG}{t}" for t in ("svg", "g", "path", "text")}]


def test_models_that_share_a_figure_have_different_thumbnails():
    for figure in FIGURES:
        shared = [thumbnail(id) for id in (figure.model, *figure.also)]
        assert len(set(shared)) == len(shared), figure.name


def test_thumbnails_are_served_as_they_are_stored(running):
    reply = running.get("/thumbnails/perceptron.svg")
    assert (reply.status, reply.headers["content-type"]) == (200, "image/svg+xml")
    assert reply.body == thumbnail_file("perceptron").read_bytes()
    assert b"<b>" not in thumbnail("<b>odd")  # a placeholder
    assert running.get("/thumbnails/none.svg").status == 404


def test_a_thumbnail_is_the_most_telling_panel_of_a_figure():
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt
    import numpy as np

    from solvable.explorer.thumbnails import Panel

    figure, (flat, telling, empty) = plt.subplots(1, 3)
    flat.plot([0, 1, 2], [0.5, 0.5, 0.5])
    flat.set_ylim(0, 1)
    telling.plot(np.linspace(0, 1, 50), np.linspace(0, 1, 50) ** 2, color="red")
    telling.plot([0.1, 0.5, 0.9], [0.01, 0.25, 0.81], "o")
    telling.set(xlabel="samples, $\\alpha$", ylabel="test error")
    figure.canvas.draw()
    scores = [Panel(axes).score for axes in (flat, telling, empty)]
    made = Panel(telling).svg()
    plt.close(figure)
    assert scores[1] > scores[0] > scores[2] == 0
    assert ">samples<" in made
    assert ">test error<" in made
    assert made.count("#ff0000") == 1


def test_words_of_the_set_up_find_a_model(running):
    words = running.get("/api/words").json["words"]
    assert set(words) == {line.id for line in LISTINGS}
    assert "gardner" in words["perceptron"].split()  # of a reference
    assert "hinge" in words["perceptron"].split()  # of a choice
    assert "jax" not in words["perceptron"].split()  # not of the code


# --- kept figures -----------------------------------------------------------------------------------------------------


def test_every_experiment_has_kept_results_to_open_with():
    from solvable.explorer.kept import figures

    experiments = [line.id for line in LISTINGS if line.kind == "experiment"]
    assert experiments
    assert [id for id in experiments if not figures(id)] == []


def test_a_kept_figure_is_drawn_and_others_are_refused(running):
    (first, *_) = running.get("/api/models/binary-digits/kept").json["figures"]
    assert first["command"] == "solvable figure binary-digits-depth"
    reply = running.get(f"/figures/{first['name']}.svg")
    assert (reply.status, reply.headers["content-type"]) == (200, "image/svg+xml")
    assert ElementTree.fromstring(reply.body).tag == f"{SVG}svg"
    assert running.get("/figures/..%2F..%2Fsecret.svg").status in (404, 422)
    assert "there is no figure" in running.get("/figures/binary.svg").error
    assert running.get("/api/models/toy/kept").json["figures"] == []


# --- links ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", [
    {}, {"values": {"penalty": 0.25, "kind": "odd", "terms": 4}, "seeds": 3, "sizes": [20, 30], "simulated": 4},
    {"x": None}, {"y": {"field": "penalty", "from": 0, "to": 1, "points": 5, "scale": "linear"}},
])  # fmt: skip
def test_a_link_is_read_as_it_was_written(surroundings, changes):
    from solvable.explorer.links import shown_of
    from solvable.explorer.pictures import Shown
    from solvable.explorer.reproduce import link

    pins = [] if "y" in changes else [{"penalty": 1.5}, {}]
    shown = Shown.checked({"view": CURVE | changes, "pins": pins, "logarithmic": True})
    again = shown_of(link(shown, "http://127.0.0.1:8000"))
    assert again.view.json() == shown.view.json()
    assert [p.json() for p in again.pins] == [p.json() for p in shown.pins]
    assert again.logarithmic


@pytest.mark.parametrize(("link", "sentence"), [
    ("?model=toyy", "there is no model 'toyy'; did you mean 'toy'?"),
    ("?model=toy&penalti=1", "toy has no 'penalti'; did you mean 'penalty'?"),
    ("?model=toy&penalty=much", "penalty = 'much' is not a number."),
    ("?model=toy&penalty=99", "penalty = 99 is outside its range [0, 10]: shrinkage; no solution above 5."),
    ("?model=toy&x=samples", "the axis 'samples' is not of the form FIELD:FROM:TO:POINTS:SCALE."),
    ("?seeds=3", "this link names no model: it is like '?model=perceptron'."),
])  # fmt: skip
def test_a_wrong_link_is_refused_in_one_sentence(surroundings, capsys, tmp_path, link, sentence):
    code, _, err = answer(capsys, "explore", link, "--snapshot", tmp_path / "file.html")
    assert (code, err) == (2, f"solvable: {sentence}\n")
    assert not (tmp_path / "file.html").exists()


def test_an_unknown_model_is_refused_before_anything_is_served(surroundings, capsys):
    code, _, err = answer(capsys, "explore", "http://127.0.0.1:8000/?model=toyy", "--no-browser")
    assert (code, err) == (2, "solvable: there is no model 'toyy'; did you mean 'toy'?\n")


# --- snapshots --------------------------------------------------------------------------------------------------------


def self_contained(page: bytes) -> str:
    """The text of a page that loads nothing and runs nothing."""
    text = page.decode()
    assert text.startswith("<!doctype html>")
    assert "<script" not in text
    assert not re.search(r"\son\w+=", re.sub(r"<pre>.*?</pre>", "", text, flags=re.DOTALL))
    assert "default-src 'none'" in text
    # Only links to papers lead elsewhere; nothing is fetched.
    assert set(re.findall(r"<(\w+)[^>]*\s(?:href|src)=\"https?://", text)) <= {"a"}
    assert not re.search(r"(?:src|xlink:href)=\"(?!data:|#)", text)
    assert not re.search(r"url\((?!#|['\"]?data:)", text)
    assert "@import" not in text
    return text


def test_a_snapshot_holds_plot_values_and_text(running):
    body = {"view": CURVE | {"values": {"penalty": 0.25}}, "pins": [{"penalty": 2.0}], "format": "html"}
    reply = running.post("/api/export", body)
    assert reply.status == 200
    assert reply.headers["content-disposition"] == 'attachment; filename="toy.html"'
    text = self_contained(reply.body)
    assert text.count("<svg") == 1
    assert "A toy &lt;b&gt;with&lt;/b&gt; a title" in text
    assert "<td>0.25" in text
    assert "sv.create(&#x27;toy&#x27;, penalty=0.25)" in text
    assert "solvable explore &#x27;?model=toy&amp;penalty=0.25" in text
    assert "penalty:2.0" in text  # the pinned curve is in the link
    assert text.count("<tr>") >= 9


def test_a_snapshot_of_a_simulation_has_its_verdict(running):
    view = CURVE | {"sizes": [20, 40], "seeds": 4, "simulated": 3}
    ran = running.simulated(view)
    text = self_contained(running.post("/api/export", {"view": view, "format": "html", "job": ran.job}).body)
    sentence = next(data for kind, data in ran.events if kind == "agreement")["rows"][0]["sentence"]
    assert sentence in text.replace("&#x27;", "'")
    assert "simulated, size 40" in text


def test_the_command_line_writes_snapshots_of_links_and_runs(surroundings, capsys, tmp_path):
    from toys import Toy

    file = tmp_path / "view.html"
    code, out, _ = answer(capsys, "explore", "?model=toy&x=samples:0.5:8:5:log&simulated=2&seeds=2&sizes=20",
                          "--snapshot", file, "--simulate", "--json")  # fmt: skip
    assert (code, json.loads(out)["file"]) == (0, str(file))
    assert "class=findings" in self_contained(file.read_bytes())
    run = tmp_path / "run"
    sv.Study(Toy(), {"samples": [1.0, 2.0]}, sizes=[20], seeds=4).run(run, progress=False)
    code, _, _ = answer(capsys, "explore", run, "--snapshot", file)
    assert code == 0
    assert "Stored study “run”" in self_contained(file.read_bytes())


def test_a_snapshot_of_an_experiment_shows_its_kept_results(running):
    text = self_contained(running.post("/api/export", {"view": {"model": "binary-digits"}, "format": "html"}).body)
    assert text.count("<svg") == 1
    assert "six depth scales" in text


# --- room for programs ------------------------------------------------------------------------------------------------


def test_programs_are_forgotten_when_they_occupy_too_much(surroundings, monkeypatch):
    from solvable.explorer import theory
    from solvable.explorer.views import View

    theories, forgotten = theory.Theories(), []
    monkeypatch.setattr(theory, "is_full", lambda programs: programs >= 1)
    monkeypatch.setattr(theory, "forget_programs", lambda: forgotten.append(theories._known.copy()))
    views = [View.checked(CURVE | {"values": {"terms": n}, "observables": ["curve"]}) for n in (3, 4)]
    first, second, again = (theories.submit(v, lambda: True).result() for v in (*views, views[0]))
    assert len(theories._known) == 1
    assert len(forgotten) == 1  # the first curve is still kept, and needs no program
    assert again is first
    assert second.values["curve"].shape[-1] == 4
    theories.close()


def test_a_preview_does_not_make_its_curve_forgotten(surroundings, monkeypatch):
    from solvable.explorer import theory
    from solvable.explorer.views import View

    theories, forgotten = theory.Theories(), []
    monkeypatch.setattr(theory, "is_full", lambda programs: programs >= 1)
    monkeypatch.setattr(theory, "forget_programs", lambda: forgotten.append(theories._known.copy()))
    for points, draft in ((60, True), (60, False), (8, False)):
        view = View.checked(CURVE | {"x": {"field": "samples", "points": points}, "observables": ["curve"]})
        theories.submit(view, lambda: True, draft).result()
    assert (len(theories._known), forgotten) == (2, [])
    theories.close()


def test_a_full_process_is_recognised(monkeypatch):
    from solvable.explorer import room

    assert room.resident() > 10 * 2**20
    assert room.is_full(2, most=1)
    assert not room.is_full(1, most=1)  # there is nothing to forget yet
    assert not room.is_full(1000, most=2**60)
    monkeypatch.setattr(room, "resident", lambda: None)
    assert [room.is_full(n) for n in (1, room.MOST_PROGRAMS)] == [False, True]


# --- the first view ---------------------------------------------------------------------------------------------------


def test_a_model_declares_what_its_first_view_has_otherwise(surroundings):
    from toys import Toy

    from solvable.explorer.defaults import CORE_SECONDS, affordable, default_view, seconds
    from solvable.model import FirstView

    plain = default_view(Toy)
    assert plain.sizes == (20, 40)
    assert plain.seeds == affordable(plain) <= CORE_SECONDS / seconds(plain)

    class Declared(Toy):
        first_view = FirstView(sizes=(30,), seeds=5, points=2, span=(1.0, 4.0), observables=("test_error",))

    names = ("sizes", "seeds", "simulated", "observables")
    view = SimpleNamespace(**{n: getattr(default_view(Declared), n) for n in names})
    assert vars(view) == {"sizes": (30,), "seeds": 5, "simulated": 2, "observables": ("test_error",)}
    assert (default_view(Declared).x.low, default_view(Declared).x.high) == (1.0, 4.0)
    assert default_view(Declared).x.field == "samples"

    class Along(Toy):
        first_view = FirstView(along="penalty")

    assert default_view(Along).x.field == "penalty"
