"""Lecture mode: the story files and their refusals, the whole window, the keys, and predictions before curves."""

import math
import re
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.browsing import served
from visiting import Visit

import solvable as sv
from solvable.explorer import stories
from waiting import LONG

STEP = '[[story]]\ntitle = "Mine"\n[[story.step]]\nview = "{}"\ntext = "Look."\n'
CURVE = "?model=perceptron&loss=square&x=samples:0.5:5:40:log&show=test_error"


# --- files ------------------------------------------------------------------------------------------------------------


def written(folder, text):
    file = folder / "mine.toml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


def test_our_own_stories_can_be_shown():
    found = stories.read(stories.OURS)
    assert len(found) == 3
    assert all(len(story["steps"]) >= 3 and any(step["predict"] for step in story["steps"]) for story in found)


def test_a_story_names_links_sliders_and_what_to_predict(tmp_path):
    link = f"http://127.0.0.1:1234/{CURVE}"
    text = STEP.format(link) + 'sliders = ["penalty", "loss"]\npredict = "test_error"\n'
    (story,) = stories.read(written(tmp_path, text))
    (step,) = story["steps"]
    assert (story["id"], story["title"]) == ("mine", "Mine")
    assert step == {
        "query": CURVE[1:], "text_html": "Look.", "sliders": ["penalty", "loss"], "predict": "test_error",
    }  # fmt: skip


def test_the_story_of_the_manual_can_be_shown(tmp_path):
    manual = (Path(__file__).parents[2] / "docs" / "explorer.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```toml\n(.*?)```", manual, re.DOTALL)
    (story,) = stories.read(written(tmp_path, example))
    assert story["steps"][0]["predict"] == "test_error"


def test_text_of_a_story_is_escaped_and_its_mathematics_typeset(tmp_path):
    text = STEP.format(CURVE).replace("Look.", "<script>alert(1)</script> of order K^{-1/2}")
    (story,) = stories.read(written(tmp_path, text))
    shown = story["steps"][0]["text_html"]
    assert "<script" not in shown
    assert "<msup>" in shown


REFUSED = {
    "not TOML": ("title = [", "not a TOML file"),
    "not text": (b"\xff\xfe", "not a TOML file"),
    "nothing": ("", "between 1 and 40 tables [[story]]"),
    "unknown key": ("[[story]]\ntitel = 'x'", "unknown key 'titel'; did you mean 'title'?"),
    "no title": ("[[story]]\n[[story.step]]\nview='?model=perceptron'\ntext='x'", "needs a title"),
    "no step": ("[[story]]\ntitle = 'x'", "between 1 and 100 tables [[story.step]]"),
    "no view": ("[[story]]\ntitle='x'\n[[story.step]]\ntext='x'", "step 1 of 'x' in mine.toml needs a view"),
    "sliders": (STEP.format(CURVE) + "sliders = 'penalty'", "sliders must be a list of at most 6 names"),
    "model": (STEP.format("?model=perceptro"), "did you mean 'perceptron'?"),
    "value": (STEP.format("?model=perceptron&penalty=-1"), "penalty = -1"),
    "field": (STEP.format("?model=perceptron&penalti=1"), "did you mean 'penalty'?"),
    "observable": (STEP.format("?model=perceptron&show=error"), "has no observable 'error'"),
    "slider": (STEP.format(CURVE) + "sliders = ['penalti']", "no slider 'penalti'; did you mean 'penalty'?"),
    "slider on an axis": (STEP.format(CURVE) + "sliders = ['samples']", "'samples' is on an axis"),
    "prediction": (STEP.format(CURVE) + "predict = 'overlap'", "the view does not show 'overlap'"),
    "no curve": (STEP.format("?model=perceptron&x=none&show=test_error") + "predict = 'test_error'", "a single number"),
    "no theory": (STEP.format("?model=masked-language&show=test_loss") + "predict = 'test_loss'", "no curve of"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_bad_story_is_refused_in_one_sentence(tmp_path, case):
    text, sentence = REFUSED[case]
    with pytest.raises(sv.InvalidValue) as refusal:
        stories.read(written(tmp_path, text))
    said = str(refusal.value)
    assert sentence in said
    assert "\n" not in said
    assert said[-1] in ".?"


def test_a_missing_or_large_story_is_refused(tmp_path):
    with pytest.raises(sv.InvalidValue, match="cannot be read: No such file"):
        stories.read(tmp_path / "none.toml")
    with pytest.raises(sv.InvalidValue, match="more than 1048576 bytes"):
        stories.read(written(tmp_path, "#" * (stories.LARGEST + 1)))


def test_the_command_refuses_a_bad_story_with_exit_code_two(tmp_path):
    words = [
        sys.executable,
        "-m",
        "solvable",
        "explore",
        "--no-browser",
        "--story",
        str(written(tmp_path, "title = [")),
    ]
    done = subprocess.run(words, capture_output=True, text=True, timeout=LONG)
    assert done.returncode == 2
    assert "not a TOML file" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_server_tells_our_stories(running):
    found = running.get("/api/stories").json["stories"]
    assert [story["id"] for story in found] == [story["id"] for story in stories.parsed(stories.OURS)]
    assert running.get("/api/stories", cookie=None).status == 401


# --- the page ---------------------------------------------------------------------------------------------------------

TWO = f"""
[[story]]
title = "Mine <b>bold</b>"
[[story.step]]
view = "{CURVE}"
text = "What comes?"
predict = "test_error"
sliders = ["penalty", "loss"]
[[story.step]]
view = "{CURVE}&penalty=0.5"
text = "The second step."
sliders = ["noise"]
[[story.step]]
view = "?model=masked-regression&show=test_loss"
text = "Another model."
"""


@pytest.fixture(scope="module")
def told(chromium, tmp_path_factory):
    with served("--story", str(written(tmp_path_factory.mktemp("story"), TWO))) as server:
        yield server


@pytest.fixture
def hall(chromium, told):
    here = Visit(chromium, told, viewport={"width": 1440, "height": 900})
    begin(here)
    yield here
    here.end()


def begin(visit):
    visit.page.goto(f"{visit.base}/{CURVE}&lecture=mine-b-bold-b&step=0")
    visit.find(".lectern h2").wait_for()
    visit.find(".hero:not(.waits):not(.draft) .plot .main-svg").first.wait_for()
    visit.find(".pad").wait_for()


def chosen(visit):
    return [row.get_attribute("data-field") for row in visit.find(".control:visible").all()]


def sketched(visit, height):
    """Draw a function of [0, 1] over the whole pad."""
    box, mouse = visit.find(".pad").bounding_box(), visit.page.mouse
    for k in range(61):
        x = k / 60
        place = box["x"] + 0.5 + x * (box["width"] - 1), box["y"] + (1 - height(x)) * box["height"]
        mouse.move(*place)
        if k == 0:
            mouse.down()
    mouse.up()


def test_the_address_of_the_command_leads_to_the_first_step(chromium, told):
    visit = Visit(chromium, told)
    visit.page.get_by_text("What comes?").wait_for()
    assert visit.find(".lectern h2").inner_text() == "Mine <b>bold</b> 1 of 3"
    visit.end()


def test_the_lecture_has_the_whole_window_a_row_of_sliders_and_simulate_beside_the_plot(hall):
    page = hall.page
    assert page.evaluate("() => [document.documentElement.scrollHeight, document.documentElement.scrollWidth]") == [
        900,
        1440,
    ]
    assert chosen(hall) == ["penalty", "loss"]
    rows = [hall.find(f"[data-field={name}]").bounding_box() for name in chosen(hall)]
    assert rows[0]["y"] == rows[1]["y"]
    plot, start = hall.find(".plot").bounding_box(), hall.find(".simulate .primary").bounding_box()
    assert plot["width"] > 900
    assert plot["height"] > 400
    assert start["x"] > plot["x"] + plot["width"]
    assert plot["y"] < start["y"] < plot["y"] + plot["height"]
    for part in (".masthead", ".setup", ".takeaway", ".axes", ".tools"):
        assert not hall.find(part).first.is_visible(), part
    assert page.evaluate("() => parseFloat(getComputedStyle(document.querySelector('.told p')).fontSize)") >= 22
    tick = page.evaluate("() => parseFloat(getComputedStyle(document.querySelector('.plot .xtick text')).fontSize)")
    assert tick >= 16


def test_arrow_keys_turn_the_story_but_not_under_a_slider(hall):
    page, keys = hall.page, hall.page.keyboard
    keys.press("ArrowRight")  # reveals
    hall.find(".pad.revealed").wait_for(state="attached")
    page.get_by_text("What comes?").wait_for()
    hall.after(lambda: keys.press("ArrowRight"))
    page.get_by_text("The second step.").wait_for()
    assert chosen(hall) == ["noise"]
    slider = hall.find("[data-field=noise] input[type=range]")
    hall.after(lambda: slider.press("ArrowRight"))
    page.get_by_text("The second step.").wait_for()
    slider.press("PageDown")  # the key of a presenter's remote
    page.get_by_text("Another model.").wait_for()
    hall.find(".hero:not(.waits):not(.draft) .plot .main-svg").first.wait_for()
    assert page.evaluate("() => document.documentElement.dataset.lecture") == ""
    assert hall.find("h1").inner_text() == sv.model_class("masked-regression").title
    keys.press("ArrowRight")  # there is no further step
    keys.press("PageUp")
    page.get_by_text("The second step.").wait_for()
    page.go_back()
    page.get_by_text("Another model.").wait_for()
    keys.press("Escape")
    hall.find(".masthead").wait_for()
    assert not hall.find(".lectern").is_visible()
    assert hall.find(".control:visible").count() > 3
    hall.query(lambda q: "lecture" not in q)


def test_a_curve_is_hidden_until_it_is_revealed(hall):
    opacity = "() => document.querySelector('.plot').data.filter((t) => t.meta.curve === 0).map((t) => t.opacity)"
    assert set(hall.page.evaluate(opacity)) == {0}
    assert "hidden" in hall.find(".plot").get_attribute("aria-label")
    hall.after(lambda: hall.find("[data-field=penalty] input[type=range]").press("ArrowRight"))
    assert set(hall.page.evaluate(opacity)) == {0}
    assert "test error" not in hall.find("#live").text_content()
    hall.after(lambda: hall.page.get_by_role("button", name="Reveal").click())
    assert set(hall.page.evaluate(opacity)) == {1}
    assert hall.find(".plot").get_attribute("aria-label").startswith("test error from")


def test_a_sketch_is_measured_against_the_exact_curve(hall):
    sketched(hall, lambda x: 0.25 + 0.5 * x)
    hall.after(lambda: hall.page.get_by_role("button", name="Reveal").click())
    axes = """() => { const { xaxis, yaxis } = document.querySelector('.plot')._fullLayout;
      return [xaxis.range, yaxis.range, Array.from(document.querySelector('.plot').data[0].x)]; }"""
    (left, right), (low, high), across = hall.page.evaluate(axes)
    exact = [(y - low) / (high - low) for y in hall.curve()]
    places = [(math.log10(x) - left) / (right - left) for x in across]
    steps = [b - a for a, b in zip(places, places[1:], strict=False)]
    away = [abs(0.25 + 0.5 * p - y) for p, y in zip(places, exact, strict=True)]
    mean = sum(s * (a + b) / 2 for s, a, b in zip(steps, away, away[1:], strict=False)) / sum(steps)
    said = hall.find(".distance").inner_text()
    assert said.startswith("On average ")
    shown = [float(word) for word in said.replace("(", " ").split() if word.replace(".", "").isdigit()]
    assert shown[0] == pytest.approx(100 * mean, abs=1.0)
    assert shown[1] == pytest.approx(100 * max(away), abs=1.5)


def test_the_pad_waits_for_its_plot(chromium, told):
    visit, held = Visit(chromium, told, viewport={"width": 1440, "height": 900}), []
    visit.page.route("**/api/theory", lambda route: held.append(route) if held is not None else route.continue_())
    visit.page.goto(f"{visit.base}/{CURVE}&lecture=mine-b-bold-b&step=0")
    visit.page.get_by_role("button", name="Reveal").wait_for()
    assert visit.find(".pad").count() == 1
    assert not visit.find(".pad").is_visible()
    visit.until(lambda: held)
    going, held = held, None
    for route in going:
        route.continue_()
    visit.find(".pad").wait_for()
    box, plot = visit.find(".pad").bounding_box(), visit.find(".plot").bounding_box()
    assert box["width"] > 0.8 * plot["width"]
    visit.end()


def test_a_sketch_stays_at_its_values_when_a_slider_changes_the_axes(hall):
    sketched(hall, lambda x: 0.5)
    shape = """() => document.querySelector('.sketched').getAttribute('d').split(/[ML]/).filter(Boolean)
      .map((p) => p.split(' ').map(Number))"""
    top = "() => document.querySelector('.plot')._fullLayout.yaxis.range[1]"
    high = "() => document.querySelector('.plot')._fullLayout.yaxis._length"
    before = 0.5 * hall.page.evaluate(top)
    hall.after(lambda: hall.find("[data-field=penalty] input[type=range]").press("End"))
    now = hall.page.evaluate(top)
    length = hall.page.evaluate(high)
    places = [1 - y / length for _, y in hall.page.evaluate(shape)]
    assert len(places) > 100
    assert places == pytest.approx([before / now] * len(places), abs=0.01)
    hall.page.get_by_role("button", name="Clear the sketch").click()
    assert hall.page.evaluate(shape) == []


def test_any_model_has_a_lecture_mode(visit):
    visit.open("?model=perceptron&show=test_error")
    visit.page.get_by_role("button", name="Lecture mode").click()
    visit.find(".lecturing .plot .main-svg").first.wait_for()
    assert 2 <= visit.find(".control:visible").count() <= 4
    visit.query(lambda q: "lecture=free" in q)
    visit.page.get_by_role("button", name="Predict first").click()
    visit.find(".pad").wait_for()
    visit.page.get_by_role("button", name="Reveal").click()
    visit.page.get_by_role("button", name="Leave").click()
    visit.find(".masthead").wait_for()
    assert visit.find(".pad").count() == 0


def test_a_lecture_fits_a_phone(phone):
    phone.open(f"{CURVE}&lecture=double-descent&step=0")
    assert phone.page.evaluate("() => document.querySelector('.lecturing').scrollWidth") <= 360
    box = phone.find(".plot").bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 360


def test_our_stories_stand_on_the_first_page(visit):
    visit.find(".lectures .story-card").first.wait_for()
    assert visit.find(".lectures strong").all_inner_texts() == [s["title"] for s in stories.parsed(stories.OURS)]
    visit.find("[data-lecture=double-descent]").click()
    visit.page.get_by_text("1 of 4").wait_for()
    visit.find(".pad").wait_for()


def test_the_distance_of_a_sketch_from_a_curve(visit):
    measured = """async () => {
      const { distance } = await import('/static/prediction.js');
      const line = [[0, 0], [0.5, 0.5], [1, 1]], ink = [0.1, 0.6, 0.9];
      const gaps = [[0, 0], null, [1, 1]];
      return [[ink, line], [[NaN, 0.5, NaN], line], [[NaN, NaN], line], [ink, gaps]].map((pair) => distance(...pair));
    }"""
    whole, part, none, gaps = visit.page.evaluate(measured)
    assert whole["mean"] == pytest.approx(0.1)
    assert whole["share"] == 1
    assert (part["mean"], part["share"]) == (0, pytest.approx(1 / 3))
    assert none is None
    assert gaps is None
