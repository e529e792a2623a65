"""The page keeps its shape: in any font, before and after a curve, and under the pointer."""

import pytest
from benchmarks.browsing import served
from visiting import Visit

import solvable as sv
from solvable.render.equations import mathml

FONTS = """(family) => {
  for (const kind of ["--sans", "--serif", "--mono"]) document.documentElement.style.setProperty(kind, family);
  document.querySelectorAll("details").forEach((d) => { d.open = true; });
}"""
SHIFTS = """
window.shifted = [];
new PerformanceObserver((list) => {
  for (const e of list.getEntries()) {
    if (!e.hadRecentInput) window.shifted.push([e.value, ...e.sources.map((s) => s.node?.className ?? "")]);
  }
}).observe({ type: "layout-shift", buffered: true });
"""
PLACES = """() => Object.fromEntries([...document.querySelectorAll(
  ".control, .control input, .segments span, .chip, .tools *, .simulate .primary, .axes select, .simulate .field, .takeaway"
)].map((e, k) => [`${k} ${e.tagName} ${e.classList[0]}`, e]).filter(([, e]) => e.getClientRects().length).map(([name, e]) => {
  const box = e.getBoundingClientRect();
  return [name, [box.x, box.y + scrollY]];
}))"""


def moved(before, after):
    """What is not where it was."""
    gone = set(before) ^ set(after)
    return gone | {
        n for n in set(before) & set(after) if any(abs(a - b) > 1 for a, b in zip(before[n], after[n], strict=True))
    }


@pytest.mark.parametrize("font", ["DejaVu Sans", "DejaVu Serif", "DejaVu Sans Mono"])
def test_a_phone_is_wide_enough_for_every_font(phone, font):
    queries = ["", "?tour=all", *(f"?model={m}" for m in ("perceptron", "phase-retrieval", "linear-diffusion"))]
    for query in queries:
        phone.page.goto(f"{phone.base}/{query}")
        phone.find(".card, .panel .control").first.wait_for()
        for size in ("normal", "large"):
            phone.page.evaluate("(size) => { document.documentElement.dataset.type = size; }", size)
            phone.page.evaluate(FONTS, f'"{font}"')
            assert phone.page.evaluate("() => document.documentElement.scrollWidth") <= 360, (query, size)


def test_explanations_are_whole(visit):
    visit.open("?model=perceptron&show=test_error")
    cut = """() => [...document.querySelectorAll('.meaning, .wakes, .sentence')].filter((e) =>
      e.scrollHeight > e.clientHeight + 1 || getComputedStyle(e).textOverflow === 'ellipsis' ||
      getComputedStyle(e).whiteSpace === 'nowrap').map((e) => e.textContent)"""
    assert visit.find(".meaning").count() >= 4
    assert visit.page.evaluate(cut) == []


def test_sliders_come_before_chips_for_the_keyboard_and_beside_the_plot_for_the_eye(visit):
    visit.open("?model=perceptron&show=test_error")
    order = "() => [...document.querySelectorAll('main .panel input[type=range], main .chip')].map((e) => e.className || e.type)"
    found = visit.page.evaluate(order)
    assert found.index("chip") > max(k for k, what in enumerate(found) if what == "range")
    assert found.count("chip") >= 2
    panel, plot = visit.find(".panel").bounding_box(), visit.find(".plot").bounding_box()
    assert panel["x"] > plot["x"] + plot["width"]  # at this width on the right


@pytest.mark.parametrize("query", ["?model=perceptron", "?model=soft-committee", ""])
def test_nothing_shifts_while_the_page_loads(visit, query):
    visit.context.add_init_script(SHIFTS)
    visit.open(query)
    visit.page.wait_for_timeout(600)  # what comes after the first curve: claims, found simulations
    shifted = visit.page.evaluate("window.shifted")
    assert sum(value for value, *_ in shifted) < 0.01, shifted


def test_nothing_shifts_under_the_pointer(visit):
    visit.open("?model=perceptron&show=test_error&sizes=20&seeds=2&simulated=2")
    places = visit.page.evaluate(PLACES)

    def still(what):
        after = visit.page.evaluate(PLACES)
        assert moved(places, after) == set(), what

    for row in visit.find(".control").all():
        row.hover()
        still("hovering over a control")
    slider = visit.find("[data-field=penalty] input[type=range]")
    visit.after(lambda: slider.press("ArrowRight"))
    still("moving a slider")
    visit.after(lambda: visit.find("[data-field=loss]").get_by_text("hinge").click())
    still("choosing")
    visit.after(lambda: visit.find("[data-observable=overlap]").click())
    still("showing another observable")
    visit.after(lambda: visit.find("[data-observable=overlap]").click())
    for _ in range(5):
        visit.after(lambda: visit.page.get_by_role("button", name="Pin this curve").click())
        still("pinning")
        visit.after(lambda: slider.press("ArrowRight"))
    visit.find(".simulate .primary").click()
    visit.page.get_by_role("button", name="Cancel").wait_for()
    still("simulating")
    visit.page.get_by_text("Done").wait_for()
    visit.after(lambda: visit.page.get_by_label("logarithmic values").check())
    takeaway = {n for n in places if "takeaway" in n}  # the verdict, which is not known before, comes above it
    assert moved(places, visit.page.evaluate(PLACES)) <= takeaway


def test_a_choice_that_wakes_a_control_moves_no_other(visit):
    visit.open("?model=masked-regression&show=test_loss")
    inside = PLACES.replace("document.querySelectorAll(", "document.querySelector('.panel').querySelectorAll(")
    sleeping, places = visit.find(".control.asleep").count(), visit.page.evaluate(inside)
    assert sleeping > 3
    assert len(places) > 10
    visit.after(lambda: visit.find("[data-field=covariance] select").select_option("spiked"))
    assert visit.find(".control.asleep").count() != sleeping
    assert not (found := moved(places, visit.page.evaluate(inside))), found


# --- labels -----------------------------------------------------------------------------------------------------------


def test_labels_of_a_plot_never_become_links(chromium, tmp_path):
    tempting = '<a href="https://example.org">free</a> %{x}'
    study = sv.Study(sv.Perceptron(loss="square"), {"penalty": [0.1, 1.0]}, arms={tempting: {"noise": 0.1}, "b": {}})
    study.run(tmp_path / "run", progress=False)
    with served(str(tmp_path / "run")) as address:
        visit = Visit(chromium, address)
        visit.open("?study=1&x=arm")
        ticks = [text.replace("\xa0", " ") for text in visit.find(".plot .xtick").all_text_contents()]
        assert tempting in ticks, ticks
        box = visit.find(".plot .nsewdrag").bounding_box()
        visit.page.mouse.move(box["x"] + box["width"] / 12, box["y"] + box["height"] / 2)
        visit.find(".plot .hoverlayer text").first.wait_for()
        assert visit.find(".plot a").count() == 0
        visit.end()


@pytest.mark.parametrize(
    ("latex", "label"),
    [
        (r"\log q", "log\u2009<i>q</i>"),
        (r"\hat y", "<i>y\u0302</i>"),
        (r"\bar T_0", "<i>T\u0304</i><sub>0</sub>"),
        (r"\sigma_b^2", "<i>σ</i><sub><i>b</i></sub><sup>2</sup>"),
    ],
)
def test_a_symbol_in_a_plot_label_has_its_spaces_and_accents(visit, latex, label):
    plain = "async (m) => (await import('/static/dom.js')).plainSymbol(m)"
    assert visit.page.evaluate(plain, mathml(latex)) == label


def test_exported_pictures_hold_the_pins_and_the_scale(visit):
    visit.open("?model=perceptron&show=test_error&penalty=0.5&pin=penalty:0.01&axis=log")
    visit.page.get_by_text("Export this view").click()
    visit.page.get_by_text("'penalty 0.01': sv.Perceptron(penalty=0.01)").wait_for()
    assert "'test_error': 'log'" in visit.find("[data-what=python] code").inner_text()
    with visit.page.expect_download() as waiting:
        visit.find("[data-format=svg]").click()
    with open(waiting.value.path()) as file:
        assert "penalty 0.01" in file.read()
    visit.page.get_by_label("logarithmic values").uncheck()
    visit.until(lambda: "'log'" not in visit.find("[data-what=python] code").inner_text())
