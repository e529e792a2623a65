"""The page in a real browser: every promise that a person can see, on models of different kinds.

After every test: nothing in the console, no refusal by the content security policy, no request to anywhere but our own server.
"""

import json
import re
import sys
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from visiting import CURVE, Visit

import solvable as sv
from solvable.explorer.defaults import default_view

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
from benchmarks.browsing import moved, opened, served  # noqa: E402

STATIC = ROOT / "src" / "solvable" / "explorer" / "static"
WALKED = ("perceptron", "soft-committee", "random-features")
QUICK = {"perceptron": ("20", "2", "2"), "soft-committee": ("20", "2", None), "random-features": ("20", "2", "2")}


def sliders(visit):
    """The controls that can be moved: those that matter only after another choice are greyed."""
    every = visit.find(".control:not(.swept) input[type=range]:enabled")
    return [
        every.nth(k).locator("xpath=ancestor::div[@data-field]").get_attribute("data-field")
        for k in range(every.count())
    ]


def simulate(visit, sizes, seeds, points):
    visit.page.get_by_label("sizes").fill(sizes)
    visit.page.get_by_label("seeds").fill(seeds)
    if points:
        visit.page.get_by_label("at points").fill(points)
    visit.find(".simulate .primary").click()


# --- the first page ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "query", ["?model=perceptron", "?model=random-features&x=width:0.3:10:60:log&show=test_error,train_loss"]
)
def test_a_first_sketch_appears_before_the_plotting_library_loads_and_is_then_replaced(visit, query):
    held = []
    visit.page.route("**/plotly.js", lambda route: held.append(route))
    visit.page.goto(visit.base + "/" + query, wait_until="commit")
    visit.find(".plot .sketch").wait_for()
    first = [visit.find(".plot .sketch path[stroke-width]").nth(k).bounding_box() for k in range(2)]
    assert min(box["width"] for box in first) > 200  # a line in either panel
    assert first[1]["x"] > first[0]["x"] + first[0]["width"]
    for route in held:
        route.continue_()
    visit.find(".plot .main-svg").first.wait_for()
    assert visit.find(".sketch").count() == 0
    then = [visit.find(".plot .scatterlayer .js-line").nth(k).bounding_box() for k in range(2)]
    for early, late in zip(first, then, strict=True):  # in the same position, except for the space of the axes
        assert abs(early["x"] - late["x"]) < 40
        assert abs(early["y"] - late["y"]) < 40
        assert abs(early["width"] - late["width"]) < 60


def test_the_first_page_explains_itself_and_finds_models_by_word_and_family(visit):
    cards = visit.find(".card:visible")
    cards.first.wait_for()
    assert cards.count() == len(sv.listings())
    assert visit.find(".hello p").inner_text().count(". ") == 1  # two sentences
    badges = visit.find(".card .badge").all_inner_texts()
    assert badges == [line.kind for line in sv.listings().values()]
    visit.page.get_by_label("Search the models").fill("one row of factored attention")
    assert cards.first.get_attribute("data-model") == "potts-attention"
    visit.page.get_by_label("Search the models").fill("sum of relus")
    assert cards.count() == 1
    assert visit.find(".count").inner_text() == "1 model"
    visit.page.get_by_label("Search the models").fill("no such thing")
    visit.page.get_by_role("button", name="Show all models").click()
    visit.page.get_by_role("button", name="Online learning").click()
    online = [id for id, listing in sv.listings().items() if listing.family == "online"]
    assert [c.get_attribute("data-model") for c in cards.all()] == online
    assert visit.page.get_by_role("button", name="Online learning").get_attribute("aria-pressed") == "true"


def test_the_stories_of_the_tour_name_only_what_exists():
    from solvable.explorer.views import View

    stories = json.loads((STATIC / "tour.json").read_text(encoding="utf-8"))["stories"]
    assert [s["id"] for s in stories] == ["peak", "double-descent", "attention"]
    for query in (step["query"] for story in stories for step in story["steps"]):
        params = parse_qs(query, strict_parsing=True)
        kind = sv.model_class(params["model"][0])
        values = {n: _meant(kind, n, params[n][0]) for n in params if n in kind.fields()}
        assert set(params) - set(kind.fields()) <= {"model", "x", "y", "show", "pin", "axis"}, query
        axes = {
            a: dict(zip(("field", "from", "to", "points", "scale"), params[a][0].split(":"), strict=True))
            for a in "xy"
            if a in params
        }
        axes = {
            a: s | {"from": float(s["from"]), "to": float(s["to"]), "points": int(s["points"])} for a, s in axes.items()
        }
        View.checked({"model": kind.id, "values": values, "observables": params["show"][0].split(","), **axes})
        for pin in params.get("pin", []):
            pairs = [] if pin == "defaults" else [p.split(":") for p in pin.split(",")]
            kind.create(**{n: _meant(kind, n, v) for n, v in pairs})


def test_the_written_tour_has_the_views_of_the_page():
    written = (ROOT / "docs" / "tour.md").read_text(encoding="utf-8")
    stories = json.loads((STATIC / "tour.json").read_text(encoding="utf-8"))["stories"]
    for step in (step for story in stories for step in story["steps"]):
        assert f"?{step['query']}\n" in written
    for picture in re.findall(r"\(pictures/(.*?)\)", written):
        assert (ROOT / "docs" / "pictures" / picture).is_file(), picture


def _meant(kind, name, text):
    return text if kind.fields()[name].options else float(text)


def test_a_story_is_opened_from_its_card_and_leads_on(visit):
    visit.page.get_by_role("link", name="Tour").click()
    visit.find("[data-story=double-descent]").click()
    visit.find(".hero:not(.waits):not(.draft) .plot .main-svg").first.wait_for()
    assert visit.find(".story h2").inner_text().startswith("Double descent 1 of 3")
    before = visit.curve()
    peak = max(range(5, 55), key=lambda k: before[k] if before[k] > before[k - 5] else 0)
    assert before[peak] > min(before[:peak]) + 0.05  # it falls, rises and falls again
    assert before[-1] < before[peak] - 0.05
    visit.after(lambda: visit.page.get_by_role("link", name="Next").click())
    visit.page.get_by_text("2 of 3").wait_for()
    visit.find(".legend .unpin").wait_for()


# --- a model, walked in full ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", WALKED)
def test_a_model_is_walked_in_full(model, visit):
    visit.find(f"[data-model={model}]").click()
    visit.find(".hero:not(.waits):not(.draft) .plot .main-svg").first.wait_for()
    assert visit.page.get_by_role("heading", level=1).inner_text() == sv.model_class(model).title
    assert visit.find(".setup .prose p").count() > 2
    assert visit.find(".papers a[rel='noopener noreferrer']").count() >= 1
    assert visit.find(".controls math").count() >= 3

    for field in sliders(visit):  # every control moves the curve
        before = visit.curve()
        visit.after(lambda f=field: moved(visit.page, f, 333))
        assert visit.curve() != before, field
        visit.after(lambda f=field: _typed(visit, f, _default(model, f)))
        assert visit.curve() == before, field

    before = visit.curve()
    visit.page.get_by_role("button", name="Pin this curve").click()
    visit.find(".legend li").first.wait_for()
    first = sliders(visit)[0]
    visit.after(lambda: moved(visit.page, first, 300))
    assert visit.find(".unpin").count() == 1
    lines = "lines"
    assert visit.traces(lines) == 2 * len(visit.find(".chips.observables [aria-pressed=true]").all())

    simulate(visit, *QUICK[model])  # points with error bars, and a verdict in words
    visit.find(".verdict .findings li").first.wait_for()
    visit.find(".verdict summary").click()
    assert visit.traces("markers") >= 1
    words = set(visit.find(".verdict tbody td:nth-child(2)").all_inner_texts())
    assert {w.split()[-1] for w in words} <= {"agree", "finite-size", "inconclusive", "disagree"}
    sizes = [int(s) for s in QUICK[model][0].split(",")]
    assert visit.find(".verdict tbody tr").first.locator("td").nth(3).inner_text() == ", ".join(map(str, sizes))

    query, shown = visit.query(lambda q: f"model={model}" in q and "pin=" in q and "sizes=" in q), visit.curve()
    other = visit.another()  # the link restores the whole view
    opened(other, visit.address, f"?{query}")
    other.locator(".unpin").wait_for()
    assert other.evaluate(CURVE, 0) == shown
    drawn = other.evaluate(
        "() => document.querySelector('.plot').data.filter((t) => t.mode === 'lines').map((t) => t.meta.curve)"
    )
    assert drawn[0] != 0 == drawn[-1]  # the current curve above the pinned one
    assert other.get_by_label("sizes").input_value() == QUICK[model][0]
    other.close()

    visit.after(lambda: visit.find(".unpin").click())
    assert visit.find(".unpin").count() == 0

    simulate(visit, "400", "60", "12" if QUICK[model][2] else None)
    visit.page.get_by_role("button", name="Cancel").click()
    visit.page.get_by_text("Cancelled").wait_for()
    assert visit.find(".simulate .primary").is_enabled()


def _default(model, field):
    return f"{sv.model_class(model).fields()[field].default:g}"


def _typed(visit, field, text):
    box = visit.find(f"[data-field={field}] input[type=text]")
    box.fill(text)
    box.press("Enter")


def test_a_changed_axis_is_a_step_in_the_history_and_back_undoes_it(visit):
    visit.open("?model=perceptron&show=test_error")
    axis = visit.page.get_by_label("Horizontal axis", exact=True)
    visit.after(lambda: axis.select_option("penalty"))
    assert visit.find("[data-field=penalty] .onaxis").inner_text() == "on the horizontal axis"
    visit.after(visit.page.go_back)
    assert axis.input_value() == "samples"
    visit.after(visit.page.go_forward)
    assert axis.input_value() == "penalty"
    visit.page.get_by_role("link", name="Models", exact=True).click()
    visit.find(".card").first.wait_for()
    visit.page.go_back()
    visit.find(".plot .main-svg").first.wait_for()


def test_two_swept_controls_make_a_phase_diagram_and_none_makes_curves_again(visit):
    visit.open("?model=perceptron&show=test_error&x=samples:0.5:5:8:log")
    second = visit.page.get_by_label("Vertical axis", exact=True)
    visit.open("?model=perceptron&show=test_error&x=samples:0.5:5:8:log&y=penalty:0.01:10:8:log")
    kinds = "() => document.querySelector('.plot').data.map((t) => t.type)"
    assert visit.page.evaluate(kinds)[0] == "heatmap"
    assert visit.page.evaluate("() => document.querySelector('.plot').data[0].z.length") == 8
    assert visit.find(".simulate .primary").is_disabled()
    visit.after(lambda: second.select_option(""))
    assert set(visit.page.evaluate(kinds)) == {"scatter"}


def test_choosing_a_vertical_axis_opens_a_plane_with_its_own_ranges(visit):
    visit.open("?model=perceptron&show=test_error&x=samples:0.5:5:8:log")
    visit.after(lambda: visit.page.get_by_label("Vertical axis", exact=True).select_option("noise"))
    assert visit.page.evaluate("() => document.querySelector('.plot').data[0].type") == "heatmap"
    assert visit.find("[data-field=noise] .onaxis").inner_text() == "on the vertical axis"
    assert visit.find("[data-axis=y] input[type=text]").first.input_value() == "0"


def test_exports_hold_the_shown_view(visit):
    visit.open("?model=perceptron&show=test_error&penalty=0.5")
    visit.page.get_by_text("Export this view").click()
    visit.page.get_by_text("sv.Perceptron(penalty=0.5)").wait_for()
    assert "penalty=0.5" in visit.find("[data-what=shell] code").inner_text()
    assert "penalty=0.5" in visit.find("[data-what=link] code").inner_text()
    visit.context.grant_permissions(["clipboard-read", "clipboard-write"])
    visit.page.get_by_role("button", name="Copy python").click()
    visit.page.get_by_role("button", name="Copy python").filter(has_text="Copied").wait_for()
    assert "sv.Perceptron(penalty=0.5)" in visit.page.evaluate("navigator.clipboard.readText()")
    for kind, start in (("csv", b""), ("png", b"\x89PNG"), ("svg", b"<?xml"), ("nc", b"")):
        with visit.page.expect_download() as waiting:
            visit.find(f"[data-format={kind}]").click()
        file = Path(waiting.value.path())
        assert waiting.value.suggested_filename.endswith(f".{kind}")
        assert file.read_bytes().startswith(start)
        assert file.stat().st_size > 500, kind


def test_a_choice_that_removes_the_shown_observable_shows_another(visit):
    visit.open("?model=perceptron&show=test_error&loss=square")
    visit.after(lambda: visit.find("[data-field=teacher]").get_by_text("linear").click())
    shown = visit.find(".chips.observables [aria-pressed=true]").all_inner_texts()
    assert len(shown) == 1
    assert shown[0].startswith("test loss")
    visit.query(lambda q: "test_error" not in q)


def test_the_observables_are_switched_on_and_off_but_never_all_off(visit):
    visit.open("?model=perceptron&show=test_error")
    chip = visit.find("[data-observable=overlap]")
    visit.after(chip.click)
    assert visit.traces("lines") == 2
    visit.after(chip.click)
    visit.find("[data-observable=test_error]").click()
    assert visit.find("[data-observable=test_error]").get_attribute("aria-pressed") == "true"


def test_the_values_are_also_in_a_table(visit):
    visit.open("?model=perceptron&show=test_error&x=samples:0.5:5:8:log")
    visit.page.get_by_text("Values as a table").click()
    rows = visit.find(".values tbody tr")
    rows.first.wait_for()
    assert rows.count() == 8
    assert float(rows.first.locator("td").inner_text()) == pytest.approx(visit.curve()[0], rel=1e-4)


def test_matrices_over_time_are_one_line_per_entry(visit):
    visit.open("?model=soft-committee&show=overlap")
    assert visit.traces("lines") == 4
    assert visit.find(".legend li").all_inner_texts()[0] == "student 1, teacher 1"


# --- for everybody ----------------------------------------------------------------------------------------------------


def test_fifty_moves_in_a_row_leave_no_backlog(visit):
    visit.open("?model=perceptron&show=test_error")
    under_way, most = [], 0

    def begun(request):
        nonlocal most
        if is_of_the_slider(request):
            under_way.append(request)
            most = max(most, len(under_way))

    def is_of_the_slider(request):  # and does not replace a draft
        return request.url.endswith("/api/theory") and request.post_data_json["stream"].endswith("-curve")

    visit.page.on("request", begun)
    visit.page.on("requestfinished", lambda r: under_way.remove(r) if r in under_way else None)
    rail = visit.find("[data-field=penalty] input[type=range]").bounding_box()
    mouse, y = visit.page.mouse, rail["y"] + rail["height"] / 2
    mouse.move(rail["x"] + rail["width"] * 0.4, y)
    mouse.down()
    for k in range(50):
        mouse.move(rail["x"] + rail["width"] * (0.4 + 0.01 * k), y)
    mouse.up()
    value = float(visit.find("[data-field=penalty] input[type=text]").input_value())

    def settled():
        asked = json.loads(visit.theories[-1].post_data)["view"]["values"]["penalty"]
        return not under_way and asked == pytest.approx(value, rel=1e-5)

    visit.until(settled)
    visit.until(lambda: visit.curve() == visit.theories[-1].response().json()["series"][0]["values"])
    assert most == 1
    assert sum(map(is_of_the_slider, visit.theories)) <= 52


def test_every_move_of_a_slider_is_drawn(visit):
    visit.open("?model=perceptron&show=test_error")
    curves = set()
    for k in range(10):
        moved(visit.page, "penalty", 40 + 29 * k)  # speed is measured in benchmarks/explorer.py
        curves.add(tuple(visit.curve()))
    assert len(curves) == 10


def test_a_bad_value_shows_the_command_line_message_beside_its_field(visit):
    visit.forgiven = ("422",)
    visit.open("?model=perceptron&show=test_error")
    before = visit.curve()
    _typed(visit, "penalty", "-1")
    refusal = visit.find("[data-field=penalty] .refusal")
    refusal.wait_for()
    with pytest.raises(sv.InvalidValue) as params:
        sv.Perceptron(penalty=-1)
    assert refusal.inner_text() == str(params.value)
    assert visit.find("[data-field=penalty] input[aria-invalid]").count() == 2
    assert visit.curve() == before
    _typed(visit, "penalty", "many")
    assert "is not a number" in refusal.inner_text()
    visit.after(lambda: _typed(visit, "penalty", "0.2"))
    assert not refusal.is_visible()


def test_a_bad_range_shows_a_message_beside_the_axis(visit):
    visit.forgiven = ("422",)
    visit.open("?model=perceptron&show=test_error")
    box = visit.page.get_by_label("from of the horizontal axis")
    box.fill("-3")
    box.press("Enter")
    visit.find("[data-axis=x] .refusal").get_by_text("outside its range").wait_for()


def test_a_silent_server_and_an_unknown_model_show_one_sentence(visit):
    visit.forgiven = ("404", "ERR_FAILED", "Failed to load resource")
    visit.page.goto(f"{visit.base}/?model=no-such-model")
    visit.page.get_by_role("alert").get_by_text("there is no").wait_for()
    visit.open("?model=perceptron&show=test_error")
    visit.page.route("**/api/theory", lambda route: route.abort())
    visit.find("[data-field=penalty] input[type=range]").press("ArrowRight")
    silence, again = (
        visit.page.get_by_text("The server does not respond"),
        visit.page.get_by_role("button", name="Try again"),
    )
    silence.wait_for()
    again.click()
    silence.wait_for()  # as silent as before
    visit.page.unroute("**/api/theory")

    def answered():
        # The full curve, requested after a pause, may arrive first; then there is nothing to retry.
        again.evaluate_all("(found) => found.forEach((button) => button.click())")  # unlike click, waits for none
        return not silence.is_visible()

    visit.until(answered)


def test_an_experiment_invites_to_simulate(visit):
    visit.page.goto(f"{visit.base}/?model=masked-language")
    visit.find(".empty").get_by_text("has no closed theory").wait_for()
    assert visit.find(".title .badge").inner_text() == "experiment"
    assert visit.find(".simulate .primary").is_enabled()


def test_a_phone_has_the_plot_in_sight_while_a_control_below_it_moves(phone):
    phone.open("?model=perceptron&show=test_error")
    width = "() => [document.documentElement.scrollWidth, window.innerWidth]"
    scroll, inner = phone.page.evaluate(width)
    assert scroll <= inner == 360
    slider = phone.find("[data-field=noise] input[type=range]")
    slider.evaluate("(e) => e.scrollIntoView({ block: 'end' })")
    box = phone.find(".plot").bounding_box()
    assert box["y"] >= 0
    assert box["y"] + box["height"] < slider.bounding_box()["y"]
    before = phone.curve()
    moved(phone.page, "noise", 200)
    assert phone.curve() != before
    phone.page.goto(phone.base)
    phone.find(".card").first.wait_for()
    assert phone.page.evaluate(width)[0] <= 360


@pytest.mark.parametrize("query", ["", "?model=perceptron&show=test_error"])
def test_wide_letters_do_not_widen_the_page_of_a_phone(phone, query):
    phone.open(query)
    phone.find(".card, .plot").first.wait_for()
    phone.page.evaluate("() => { document.documentElement.style.letterSpacing = '0.1em'; }")
    assert phone.page.evaluate("() => document.documentElement.scrollWidth") <= 360


def test_dark_follows_the_system_and_the_button_overrules_it_for_good(chromium, address):
    visit = Visit(chromium, address, color_scheme="dark")
    visit.open("?model=perceptron&show=test_error")
    light = "() => Number(getComputedStyle(document.documentElement).backgroundColor.match(/\\d+/)[0])"
    line = "() => document.querySelector('.plot').data[0].line.color"
    assert visit.page.evaluate(light) < 60
    dark_line = visit.page.evaluate(line)
    visit.after(lambda: visit.page.get_by_role("button", name="Light appearance").click())
    assert visit.page.evaluate(light) > 200
    assert visit.page.evaluate(line) != dark_line
    visit.page.reload()
    visit.find(".plot .main-svg").first.wait_for()
    assert visit.page.evaluate(light) > 200
    visit.after(lambda: visit.page.get_by_role("button", name="Larger type").click())
    assert visit.page.evaluate("() => parseFloat(getComputedStyle(document.documentElement).fontSize)") >= 20
    visit.end()


def test_everything_works_by_keyboard_alone_with_visible_focus(visit):
    visit.find(".card").first.wait_for()
    keys = visit.page.keyboard
    focus = """() => {
      const e = document.activeElement, s = getComputedStyle(e.matches('.segments input') ? e.closest('.segments') : e);
      const name = e.dataset.model ?? e.closest('[data-field]')?.dataset.field ?? e.getAttribute('aria-label');
      return [e.tagName, name ?? e.textContent.trim(), s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 2];
    }"""

    def tab_to(tag, name, most=60):
        for _ in range(most):
            keys.press("Tab")
            found = visit.page.evaluate(focus)
            assert found[2], f"no focus in sight on {found}"
            if found[0] == tag and found[1] == name:
                return
        raise AssertionError(f"{tag} {name} was not reached")

    keys.press("Tab")
    assert visit.page.evaluate(focus)[1] == "Skip to the content"
    tab_to("A", "perceptron")
    keys.press("Enter")
    visit.find(".hero:not(.waits):not(.draft) .plot .main-svg").first.wait_for()
    reached = {}
    for _ in range(80):
        keys.press("Tab")
        tag, name, seen = visit.page.evaluate(focus)
        if tag == "BODY":
            break
        assert seen, (tag, name)
        reached.setdefault(name, tag)
    for wanted in ("penalty", "noise", "loss", "teacher", "Horizontal axis", "Pin this curve", "Simulate"):
        assert wanted in reached, reached
    visit.find("[data-field=penalty] input[type=range]").focus()
    before = visit.curve()
    visit.after(lambda: keys.press("ArrowRight"))
    assert visit.curve() != before
    label = visit.find(".plot").get_attribute("aria-label")
    assert label.startswith("test error from")
    visit.until(lambda: visit.find("#live").inner_text().startswith("test error from"))


def test_every_control_has_a_name_and_every_picture_a_text(visit):
    visit.open("?model=soft-committee")
    nameless = """() => [...document.querySelectorAll('button, input, select, a, summary')].filter((e) => {
      const said = e.labels?.length || e.getAttribute('aria-label') || e.getAttribute('aria-labelledby') || e.textContent.trim();
      return e.offsetParent !== null && !said;
    }).map((e) => e.outerHTML)"""
    assert visit.page.evaluate(nameless) == []
    twice = """() => {
      const ids = [...document.querySelectorAll('main [id], header [id]')].map((e) => e.id);
      return ids.filter((x, k) => ids.indexOf(x) !== k);
    }"""
    assert [i for i in visit.page.evaluate(twice) if not i.startswith("clip")] == []
    assert visit.page.locator("img:not([alt])").count() == 0


def test_a_stored_study_is_shown_with_its_own_points_and_verdict(chromium, tmp_path):
    swept = {"samples": [0.5, 1.0, 2.0], "penalty": [0.1, 1.0]}
    study = sv.Study(sv.Perceptron(loss="square"), swept, sizes=[20], seeds=2)
    study.run(tmp_path / "run")
    with served(str(tmp_path / "run")) as address:
        visit = Visit(chromium, address)  # the address opens the run
        visit.find(".plot .main-svg").first.wait_for()
        assert visit.traces("markers") == 1
        assert visit.curve() == pytest.approx(
            [float(v) for v in study.dataset()["test_error_theory"].sel(penalty=0.1)], rel=1e-9
        )
        before = visit.curve()
        visit.after(lambda: visit.page.get_by_label("penalty").select_option("1"))
        assert visit.curve() != before
        assert visit.find(".verdict .findings li").count() == 1  # of what is on the screen
        assert visit.find(".verdict tbody tr").count() >= 2
        visit.query(lambda q: "at=penalty:1" in q)
        visit.page.get_by_text("Export this view").click()
        with visit.page.expect_download() as waiting:
            visit.find("[data-format=csv]").click()
        assert waiting.value.suggested_filename.endswith(".csv")
        visit.end()


# --- a model of another package ---------------------------------------------------------------------------------------


def test_a_model_of_another_package_shows_branches_transition_lines_and_escaped_text(surroundings, chromium):
    with served() as address:
        visit = Visit(chromium, address)
        visit.open("?model=toy&show=test_error&x=samples:0.5:8:12:log")
        assert visit.find("h1").inner_text() == "A toy <b>with</b> a title"
        number = "() => document.querySelector('.plot').data.length"
        alone = visit.page.evaluate(number)
        visit.after(lambda: visit.page.get_by_label("all branches").check())
        assert visit.page.evaluate(number) == alone + 1
        lower, upper = sorted((visit.curve(0), visit.curve(1)))
        assert all(abs(b - a - 1) < 1e-9 for a, b in zip(lower, upper, strict=True))
        visit.query(lambda q: "branches=1" in q)
        visit.open("?model=toy&show=test_error&x=samples:0.5:8:8:log&y=penalty:0.1:9:8")
        lines = visit.page.evaluate("() => document.querySelector('.plot').data.filter((t) => t.mode === 'lines')")
        assert lines
        assert all(abs(y - x - 1) < 1e-9 for line in lines for x, y in zip(line["x"], line["y"], strict=True))
        assert visit.page.get_by_text("transition: <i>line</i>").is_visible()
        visit.end()


def test_a_draft_is_replaced_by_the_curve(surroundings, chromium):
    with served() as address:
        visit = Visit(chromium, address)
        visit.open("?model=toy&show=test_error&x=samples:0.5:8:12:log&terms=2")
        first, *_, last = (request.response().json() for request in visit.theories)
        assert (first["draft"], last["draft"]) == (True, False)
        visit.until(lambda: visit.curve() == last["series"][0]["values"])
        visit.end()


def test_a_simulation_is_found_again_after_a_reload_and_from_another_model(surroundings, chromium):
    with served() as address:
        visit = Visit(chromium, address)
        visit.page.goto(f"{visit.base}/?model=sleepy&delay=600&x=none")
        simulate(visit, "2", "2", None)
        quit = visit.page.get_by_role("button", name="Cancel")
        visit.page.get_by_text("0 of 2 cells").wait_for()
        visit.page.reload()
        visit.page.get_by_text("0 of 2 cells").wait_for()
        assert quit.is_visible()
        other = visit.another()  # and the first tab is closed
        visit.page.close()
        visit.page = other
        visit.open("?model=toy")
        visit.page.get_by_text("A simulation of sleepy is running").wait_for()
        visit.page.get_by_role("button", name="Cancel it").click()
        visit.until(lambda: not visit.find(".elsewhere").inner_text())
        simulate(visit, "20", "2", "2")
        visit.page.get_by_text("Done").wait_for()
        visit.page.reload()
        visit.find(".verdict .findings li").first.wait_for()  # what has ended is found again too
        visit.end()


# --- every model ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", sv.listings())
def test_every_registered_model_opens_moves_and_simulates(model, visit):
    kind = sv.model_class(model)
    visit.context.set_default_timeout(3_600_000)  # however busy the machine
    visit.page.goto(f"{visit.base}/?model={model}")
    if kind().has_theory:
        visit.find(".hero:not(.waits):not(.draft) .plot .main-svg").first.wait_for()
    else:
        visit.find(".empty").get_by_text("has no closed theory").wait_for()
    for field in sliders(visit):
        slider = visit.find(f"[data-field={field}] input[type=range]")
        at_the_end = slider.input_value() == slider.get_attribute("max")
        visit.after(lambda s=slider, key="ArrowLeft" if at_the_end else "ArrowRight": s.press(key))
        assert not visit.find(".refusal:visible").count(), visit.find(".refusal:visible").all_inner_texts()
    visit.page.get_by_role("button", name="Back to the first view").click()
    # The first view at its smallest size: with these seeds and points its program has been compiled in the meantime.
    view = default_view(kind)
    simulate(visit, str(min(view.sizes)), str(view.seeds), None)
    visit.page.get_by_text(re.compile("^Done")).wait_for()
    assert visit.traces("markers") + visit.traces("markers+text") >= 1
    planar = [n for n, o in view.model.observables().items() if o.predicted and not o.dims]
    controls = list(kind.fields_of("control"))
    second = visit.page.get_by_label("Vertical axis", exact=True)
    if not view.x or len(controls) < 2 or not kind().has_theory:  # no second axis is offered without a first one
        assert not second.is_visible()
    if kind().answers_at_once and len(controls) > 1 and planar:
        axes = "&".join(f"{which}={plane(kind, field)}" for which, field in zip("xy", controls, strict=False))
        visit.open(f"?model={model}&{axes}&show={planar[0]}")  # 64 points, which one run of the program computes
        assert visit.page.evaluate("() => document.querySelector('.plot').data[0].type") == "heatmap"


def plane(kind, field):
    declared = kind.fields()[field]
    low, high = declared.span
    return f"{field}:{low:g}:{high:g}:8" + (":log" if declared.scale == "log" and low > 0 else "")
