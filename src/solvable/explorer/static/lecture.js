// Lecture mode: the whole window, large type, one row of sliders, Simulate beside the plot, and a story told by arrow keys.

import { sleeping } from "./controls.js";
import { announce, h, words } from "./dom.js";
import { pad } from "./prediction.js";
import { address, at } from "./story.js";

export const FREE = "free"; // lecture mode without a story
const MOST_SLIDERS = 4;
const root = document.documentElement;

/** The lectern of a model's page: asleep until the address asks for it. */
export function lectern(page) {
  let story = null, here = null, sketch = null, turn = 0;
  const told = h("div", { class: "told", "aria-live": "polite" });
  const ways = h("div", { class: "ways" });
  const says = h("p", { class: "distance", role: "status" });
  const element = h("aside", { class: "lectern", hidden: true, "aria-label": "Story" }, h("div", { class: "telling" }, told, says), ways);
  const begin = h("button", { type: "button", class: "begin", title: "Full screen, large type, a row of sliders", onclick: () => enter() }, "Lecture mode");
  const predict = h("button", { type: "button", title: "Hide the curve until it has been sketched", onclick: () => (sketch?.hidden ? reveal() : veil(page.view.observables[0])) }, "Predict first");
  const wipe = h("button", { type: "button", onclick: () => sketch?.clear() }, "Clear the sketch");
  const full = h("button", { type: "button", onclick: () => fullScreen() }, "Full screen");
  const leave = h("button", { type: "button", onclick: () => exit() }, "Leave");
  const bar = h("div", { class: "lecture-bar", hidden: true, role: "group", "aria-label": "Lecture" }, wipe, predict, full, leave);
  const watch = new ResizeObserver(() => page.redraw());

  const on = () => Boolean(page.lecture);

  function enter() {
    fullScreen(true);
    page.lecture = FREE;
    page.step = 0;
    history.pushState(null, "", `/?${page.query()}`);
    update();
  }

  function exit() {
    if (document.fullscreenElement) document.exitFullscreen().catch(() => {});
    page.lecture = null;
    page.step = 0;
    history.pushState(null, "", `/?${page.query()}`);
    update();
    begin.focus({ preventScroll: true });
  }

  function fullScreen(only = false) {
    if (document.fullscreenElement) { if (!only) document.exitFullscreen().catch(() => {}); } else root.requestFullscreen?.().catch(() => {});
  }

  /** Take the shape that the address asks for. */
  async function update() {
    const mine = ++turn;
    standing(on());
    element.hidden = bar.hidden = !on();
    begin.hidden = on();
    page.element.classList.toggle("lecturing", on());
    sketch?.close();
    sketch = null;
    says.textContent = "";
    document.removeEventListener("keydown", keys);
    watch.disconnect();
    if (!on()) { story = here = null; choose([]); show(); return page.redraw(); }
    document.addEventListener("keydown", keys);
    const found = page.lecture === FREE ? { story: null, here: null } : await at(page.lecture, page.step);
    if (mine !== turn || !on()) return;
    ({ story, here } = found);
    choose(here?.sliders?.length ? here.sliders : first());
    tell();
    if (here?.predict) veil(here.predict);
    else show();
    watch.observe(page.plot.parentElement);
    page.redraw();
  }

  /** The first controls that change something and are not on an axis. */
  function first() {
    const { view, description } = page, swept = [view.x?.field, view.y?.field];
    return description.fields.filter((f) => f.kind === "control" && !swept.includes(f.name) && !sleeping(f, view.values)).slice(0, MOST_SLIDERS).map((f) => f.name);
  }

  function choose(names) {
    for (const row of page.controls.element.querySelectorAll("[data-field]")) {
      const place = names.indexOf(row.dataset.field);
      row.toggleAttribute("data-chosen", place >= 0);
      row.style.order = place >= 0 ? place : "";
    }
  }

  function tell() {
    told.replaceChildren(...(here ? [h("h2", {}, `${story.title} `, h("span", { class: "quiet" }, `${page.step + 1} of ${story.steps.length}`)), h("p", { html: here.text_html })] : []));
    const way = (k, text, attributes) => (story?.steps[k] ? h("a", { class: "button", href: address(story, k), "data-route": true, ...attributes }, text) : null);
    ways.replaceChildren(...[way(page.step - 1, "‹ Back", { rel: "prev" }), way(page.step + 1, "Next ›", { class: "button primary", rel: "next" })].filter(Boolean));
  }

  // --- predictions ----------------------------------------------------------------------------------------------------

  function veil(observable) {
    if (page.view.y || !page.view.observables.includes(observable)) return show();
    sketch?.close();
    sketch = pad(page.plot, observable, show);
    says.textContent = `Predict first: sketch ${words(observable)} with the pointer, then reveal the curve.`;
    show();
    page.redraw();
  }

  function reveal() {
    if (!sketch?.hidden) return;
    says.textContent = sketch.reveal();
    announce(says.textContent || "The curve is shown.");
    show();
    page.redraw();
  }

  function show() {
    const hidden = Boolean(sketch?.hidden);
    predict.textContent = hidden ? "Reveal" : "Predict first";
    predict.classList.toggle("primary", hidden);
    const shown = page.declarations.observables[page.view.observables[0]];
    predict.disabled = Boolean(page.view.y) || !shown?.predicted || (!page.view.x && !shown.dims.length); // no curve to predict
    wipe.hidden = !hidden || sketch.empty;
  }

  // --- keys -----------------------------------------------------------------------------------------------------------

  /** Arrow keys turn the story unless a control has them; the keys of a presenter's remote always do. */
  function keys(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !page.element.isConnected) return;
    const busy = event.target.closest?.("input, select, textarea"), key = event.key;
    const forward = key === "PageDown" || (key === "ArrowRight" && !busy), back = key === "PageUp" || (key === "ArrowLeft" && !busy);
    if (forward && sketch?.hidden) reveal(); // a curve is never skipped before it has been seen
    else if (forward) ways.querySelector("[rel=next]")?.click();
    else if (back) ways.querySelector("[rel=prev]")?.click();
    else if (key === "f" && !busy) fullScreen();
    else if (key === "Escape" && !document.fullscreenElement) exit();
    else return;
    event.preventDefault();
  }

  return {
    element, bar, begin, update,
    /** The observable that is hidden until it has been predicted, or null. */
    get veil() { return sketch?.hidden ? sketch.observable : null; },
    drawn() { sketch?.place(); },
    close() {
      turn += 1;
      document.removeEventListener("keydown", keys);
      watch.disconnect();
      sketch?.close();
    },
  };
}

/** Give the window to the lecture, or back to the page. Stays between the pages of two steps. */
export function standing(now) {
  if (now) root.dataset.lecture = "";
  else delete root.dataset.lecture;
}
