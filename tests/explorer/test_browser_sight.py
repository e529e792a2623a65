"""First sight in a real browser: thumbnails, titles and search; points seed by seed and size by size; snapshots; kept results."""

from pathlib import Path
from urllib.parse import urlsplit

import pytest
from test_browser import simulate
from visiting import Visit, served

import solvable as sv


def test_every_card_has_its_picture_and_its_title(visit):
    cards = visit.find(".card")
    cards.first.wait_for()
    assert visit.find(".card strong").all_inner_texts() == [sv.model_class(id).title for id in sv.listings()]
    drawn = "(all) => all.map((i) => { i.loading = 'eager'; return i.complete && i.naturalWidth > 0; })"
    visit.until(lambda: all(visit.find(".card img").evaluate_all(drawn)))
    sizes = visit.find(".card img").evaluate_all("(all) => all.map((i) => i.getBoundingClientRect().width)")
    assert min(sizes) > 150
    assert sum("/thumbnails/" in url for url in visit.asked) == len(sv.listings())


def test_the_search_finds_words_of_the_set_up(visit):
    cards = visit.find(".card:visible")
    cards.first.wait_for()
    search = visit.page.get_by_label("Search the models")
    search.fill("gardner")  # in no title and in no sentence
    visit.until(lambda: cards.count() == 1)
    assert cards.first.get_attribute("data-model") == "perceptron"
    search.fill("perceptron")  # what a card says itself comes first
    first = [cards.nth(k).inner_text().lower() for k in range(2)]
    assert all("perceptron" in text for text in first)


def test_an_experiment_opens_with_its_kept_results(visit):
    visit.page.goto(f"{visit.base}/?model=binary-digits")
    picture = visit.find(".empty .kept img")
    picture.wait_for()
    visit.until(lambda: picture.evaluate("(i) => i.complete && i.naturalWidth > 0"))
    assert picture.bounding_box()["width"] > 300
    assert visit.find(".kept figcaption").inner_text().endswith("drawn by solvable figure binary-digits-depth.")
    with visit.context.expect_page() as opening:
        visit.find(".kept a").click()
    opening.value.wait_for_load_state()
    assert opening.value.url == f"{visit.base}/figures/binary-digits-depth.svg"
    assert opening.value.locator("svg").first.bounding_box()["width"] > 0.9 * picture.bounding_box()["width"]


def test_the_size_slider_shows_one_size_at_a_time(visit):
    visit.open("?model=perceptron&show=test_error&loss=square&x=samples:0.5:4:8:log")
    slider = visit.page.get_by_label("size", exact=True)
    assert not slider.is_visible()
    simulate(visit, "20, 40", "3", "2")
    visit.find(".verdict .findings li").first.wait_for()
    slider.wait_for()
    strengths = (
        "() => document.querySelector('.plot').data.filter((t) => t.mode === 'markers').map((t) => [t.name, t.opacity])"
    )
    assert min(opacity for _, opacity in visit.page.evaluate(strengths)) > 0.5
    for k, dimmed in ((0, "size 40"), (1, "size 20")):
        visit.after(lambda k=k: slider.fill(str(k)))
        assert [name for name, opacity in visit.page.evaluate(strengths) if opacity < 0.2] == [dimmed]
        says = visit.find(".sizes .quiet").inner_text()
        assert says.startswith(f"{(20, 40)[k]}: test error is ")
        assert "from the theory, with errors of" in says
    visit.after(lambda: slider.fill("2"))
    assert visit.find(".sizes .quiet").inner_text() == "all sizes: 20, 40"


def test_the_theory_at_the_size_of_the_points_is_marked_where_it_leaves_the_curve(visit):
    """A linear diffusion model is drawn at its own dimension and compared at that of the simulation."""
    visit.open("?model=linear-diffusion&show=test_loss&dimension=40&x=samples:0.25:4:8:log")
    simulate(visit, "20, 40", "3", "2")
    visit.find(".verdict .findings li").first.wait_for()
    marks = """() => document.querySelector('.plot').data.filter((t) => t.marker?.symbol === 'line-ew-open')
      .map((t) => [t.meta.size, Array.from(t.x), Array.from(t.y)])"""
    visit.until(lambda: visit.page.evaluate(marks))
    ((size, samples, seen),) = visit.page.evaluate(marks)  # at size 40 the curve itself is compared
    exact = sv.model_class("linear-diffusion")(samples=samples, dimension=size).theory()["test_loss"]
    assert size == 20
    assert seen == pytest.approx([float(v) for v in exact], rel=1e-6)
    assert "theory at the size of the points" in visit.find(".legend").inner_text()
    visit.after(lambda: visit.page.get_by_label("size", exact=True).fill("1"))
    assert visit.page.evaluate(marks) == []  # only size 40 is shown in full


def test_measured_lines_are_named_without_a_theory(visit):
    visit.open("?model=continual-digits&show=test_loss&students=2")
    visit.page.get_by_label("seeds").fill("1")
    visit.page.get_by_label("seeds").press("Tab")
    visit.find(".simulate .primary").click()
    visit.page.get_by_text("Done").wait_for()
    visit.until(lambda: visit.find(".legend li").all_inner_texts() == ["task 1", "task 2", "simulated, size 30"])


def test_a_snapshot_opens_anywhere_and_asks_for_nothing(visit, chromium, tmp_path):
    visit.open("?model=perceptron&show=test_error&penalty=0.5&x=samples:0.5:4:8:log")
    visit.page.get_by_text("Export this view").click()
    with visit.page.expect_download() as waiting:
        visit.find("[data-format=html]").click()
    file = tmp_path / "snapshot.html"
    waiting.value.save_as(file)
    context = chromium.new_context(java_script_enabled=False, offline=True)
    asked, page = [], context.new_page()
    page.on("request", lambda request: asked.append(request.url))
    page.goto(Path(file).as_uri())
    assert page.locator("h1").inner_text() == sv.Perceptron.title
    assert page.locator("figure svg").bounding_box()["width"] > 400
    assert page.locator("math").count() > 10
    fonts = "(m) => getComputedStyle(m).fontFamily"  # others have no place for an index
    assert page.locator("math").first.evaluate(fonts) == visit.find("math").first.evaluate(fonts)
    assert "penalty=0.5" in page.locator("pre").first.inner_text()
    assert asked == [Path(file).as_uri()]
    context.close()


def test_the_command_line_opens_a_link_and_a_run(chromium, tmp_path):
    sv.Study(sv.Perceptron(loss="square"), {"samples": [1.0, 2.0]}).run(tmp_path / "run", progress=False)
    with served("http://127.0.0.1:1/?token=old&model=perceptron&penalty=0.25") as server:
        here = Visit(chromium, server)
        here.find(".hero:not(.waits):not(.draft) .plot .main-svg").first.wait_for()
        assert here.find("[data-field=penalty] input[type=text]").input_value() == "0.25"
        assert "old" not in urlsplit(here.page.url).query
        here.end()
    with served(str(tmp_path / "run")) as server:
        here = Visit(chromium, server)
        here.page.get_by_text("Stored study “run”").wait_for()
        here.end()


def test_the_claims_of_a_model_are_beside_it_with_their_verdicts(visit):
    from solvable.explorer.describe import claims

    expected = claims("masked-regression")
    visit.page.goto(f"{visit.base}/?model=masked-regression")
    visit.find(".ledger > li").first.wait_for()
    assert visit.find(".ledger > li > .verdict").all_inner_texts() == [claim["verdict"] for claim in expected]
    visit.page.set_viewport_size({"width": 1440, "height": 900})
    claimed, text = (visit.find(s).bounding_box() for s in (".claims", ".setup:not(.claims)"))
    assert claimed["x"] + claimed["width"] < text["x"]


def test_a_model_that_is_left_no_longer_waits_for_its_claims(visit):
    """They can wait for the end of a simulation, and a browser opens only six connections to a server."""
    held, ended = [], []
    visit.page.route("**/claims", lambda route: held.append(route))
    visit.page.on("requestfailed", lambda request: ended.append(request.url))
    visit.open("?model=perceptron&show=test_error")
    visit.until(lambda: held)
    visit.page.get_by_role("link", name="Models", exact=True).click()
    visit.until(lambda: any(url.endswith("/claims") for url in ended))
