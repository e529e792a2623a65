// One model: controls, curves, simulations, set-up, and export.

import * as api from "./api.js";
import { completed, normal } from "./answers.js";
import { axisBar } from "./axis.js";
import { panel } from "./controls.js";
import { announce, h, number, settled, words } from "./dom.js";
import { planeOf } from "./figure.js";
import { keptFigure } from "./kept.js";
import { lectern } from "./lecture.js";
import { draw, reserve, sentence, soon, table } from "./plot.js";
import { physics, simulations } from "./simulate.js";
import { difference, existing, forServer, fromQuery, toQuery } from "./state.js";
import { takeaway } from "./takeaway.js";
import { stories as lectures } from "./story.js";
import { caption, stories } from "./tour.js";

const STATUS = {
  exact: "exact: holds at every size", asymptotic: "asymptotic: exact as the size grows",
  approximate: "approximate: known to be inexact in places", measured: "measured only: there is no theory",
};
const MOST_PINS = 6;
const HIDDEN = "The curve is hidden until it has been predicted.";
const SLOW = 0.06; // seconds: a slower curve is previewed with fewer points while a slider moves

/** The page of the model `id`, in the state that the query string describes. */
export async function modelPage(id, query) {
  soon();
  // What is told above the plot is there from the beginning.
  const told = /[?&]tour=/.test(query) ? stories() : /[?&]lecture=/.test(query) ? lectures() : null;
  const [description] = await Promise.all([api.model(id), told]);
  return new Page(description, query);
}

class Page {
  constructor(description, query) {
    this.description = description;
    this.title = description.title;
    this.declarations = { fields: Object.fromEntries(description.fields.map((f) => [f.name, f])), observables: Object.fromEntries(description.observables.map((o) => [o.name, o])) };
    Object.assign(this, fromQuery(query, description), { answer: null, problem: null, drawing: false, stale: false });
    this.repair();
    this.pins.forEach((pin, k) => { pin.colour = k + 1; });
    this.controls = panel(description, (name, value, final) => this.setValue(name, value, final));
    this.axes = axisBar(description, (patch, push) => this.change(patch, push ?? false));
    this.simulations = simulations(description, { current: () => this.view, changed: (patch) => this.change(patch, false), redraw: () => this.redraw() });
    this.away = takeaway({ current: () => ({ view: this.view, job: this.simulations.points(this.view).job, link: this.link(), also: { pins: this.pins.map((p) => p.values), logarithmic: this.logarithmic } }) });
    this.ask = api.latest((view, sequence, signal) => api.theory(forServer(view), "curve", sequence, signal, true), (...settled) => this.answered(...settled));
    // A draft is replaced once the program is compiled, unless another curve is on the screen by then.
    const shown = (view) => view === this.answerView;
    this.askExact = api.latest(async (view, sequence, signal) => (shown(view) ? api.theory(forServer(view), "exact", sequence, signal) : null), (view, answer) => {
      if (!answer || !shown(view)) return;
      this.answer = normal(answer);
      this.redraw();
    });
    // A page that was left must not overwrite the address of the next one.
    this.remember = settled(300, () => { if (!this.left) history.replaceState(null, "", `/?${this.query()}`); });
    this.resized = settled(120, () => this.redraw());
    this.gone = new AbortController();
    this.lectern = lectern(this);
    this.build();
  }

  build() {
    const d = this.description;
    this.chips = h("div", { class: "chips observables", role: "group", "aria-label": "Observables" });
    this.legend = h("ul", { class: "legend", "aria-label": "Curves" });
    this.plot = h("div", { class: "plot", role: "img", "aria-label": "The curve will be drawn here." });
    this.empty = h("div", { class: "empty over", hidden: true });
    this.status = h("p", { class: "status" });
    this.trouble = h("p", { class: "refusal", role: "alert", hidden: true });
    this.pinButton = h("button", { type: "button", onclick: () => this.pin(), title: "Keep this curve while you change the controls" }, "Pin this curve");
    this.logBox = h("input", { type: "checkbox", onchange: () => { this.logarithmic = this.logBox.checked; this.looksOtherwise(); } });
    this.branchBox = h("input", { type: "checkbox", onchange: () => this.change({ branches: this.branchBox.checked }, false) });
    this.values = h("details", { class: "astable", ontoggle: () => this.showTable() }, h("summary", {}, "Values as a table"));
    this.storyPlace = h("div", {});
    this.mapBox = h("input", { type: "checkbox", onchange: () => { this.map = this.mapBox.checked; this.redraw(); } });
    this.mapTick = h("label", { class: "tick", hidden: true }, this.mapBox, "as a map");
    const tools = h("div", { class: "tools" }, this.pinButton, h("label", { class: "tick" }, this.logBox, "logarithmic values"), this.mapTick,
      d.has_branches ? h("label", { class: "tick" }, this.branchBox, "all branches") : null);
    this.figure = h("figure", { class: "hero" }, this.chips, this.legend, h("div", { class: "canvas" }, h("div", { class: "working", "aria-hidden": "true" }), this.plot, this.empty), this.simulations.slider, this.axes.element, tools,
      h("figcaption", {}, this.trouble, this.status, this.values));
    this.element = h("div", { class: "model" },
      h("div", { class: "title" }, this.lectern.begin, this.lectern.bar, h("h1", {}, d.title), h("p", {}, h("span", { html: d.sentence_html ?? "" }), " ", h("span", { class: `badge ${d.has_theory ? "pair" : "experiment"}` }, d.has_theory ? "theory and simulation" : "experiment"))),
      this.storyPlace, this.lectern.element,
      h("div", { class: "layout" },
        h("div", { class: "bench" },
          h("section", { class: "panel", "aria-label": "Controls of the model" }, this.controls.element, h("button", { type: "button", class: "quiet-button", onclick: () => this.reset() }, "Back to the first view")),
          h("div", { class: "stage" }, this.figure, this.simulations.element, this.away.element)),
        about(d), this.ledger = h("section", { class: "setup claims", "aria-labelledby": "claims-title", hidden: true })));
  }

  /** The ledger is loaded after the curve, and the page works without it. */
  async showClaims() {
    try {
      // They can wait for a simulation, and a browser opens only six connections: a page that is left asks no longer.
      const { claims } = await api.claims(this.description.id, this.gone.signal);
      if (!claims.length) return;
      this.ledger.replaceChildren(...ledger(claims));
      this.ledger.hidden = false;
    } catch { /* the page works without it */ }
  }

  /** Called when the page is in the document, so that its width is known. */
  shown() {
    this.refresh();
    reserve(this.plot, this.view.y ? 1 : this.view.observables.length);
    this.askAll();
    this.showStory();
    this.showClaims();
    this.simulations.find();
  }

  async showStory() {
    this.lectern.update();
    const step = this.tour && this.tour !== "all" ? await caption(this.tour, this.step) : null;
    this.storyPlace.replaceChildren(...(step ? [step] : []));
  }

  accepts(id, query) {
    return id === this.description.id && !query.has("study");
  }

  /** Back, forward, or a step of the tour: the same model in another state. */
  restore(query) {
    const before = JSON.stringify([this.tour, this.step, this.lecture]);
    Object.assign(this, fromQuery(query, this.description));
    this.repair();
    this.pins.forEach((pin, k) => { pin.colour = k + 1; });
    this.refresh();
    this.askAll();
    if (JSON.stringify([this.tour, this.step, this.lecture]) !== before) this.showStory();
  }

  /** Leaving the model ends its work: curves that are still computed, previews, and its simulation. */
  close() {
    this.left = true;
    this.gone.abort();
    this.ask.stop();
    this.askExact.stop();
    clearTimeout(this.full);
    this.waited();
    this.pins.forEach((pin) => pin.ask?.stop());
    this.simulations.close();
    this.lectern.close();
    window.Plotly?.purge?.(this.plot);
  }

  reset() {
    history.pushState(null, "", `/?model=${encodeURIComponent(this.description.id)}`);
    this.restore(location.search);
    announce("Back to the first view.");
  }

  query() {
    return toQuery(this.view, this.description, this);
  }

  link() {
    return `${location.origin}/?${toQuery(this.view, this.description, { pins: this.pins, logarithmic: this.logarithmic })}`;
  }

  // --- changes --------------------------------------------------------------------------------------------------------

  setValue(name, value, final) {
    this.controls.refuse(null, "");
    if (this.view.values[name] !== value) {
      this.view.values[name] = value;
      const choice = this.declarations.fields[name].kind === "choice";
      if (choice) this.repair();
      this.afterChange(choice, false, !choice && !final);
    } else if (final) {
      this.remember();
      if (this.full) this.submit(false);
    }
  }

  change(patch, push) {
    Object.assign(this.view, patch);
    this.repair();
    if (push) history.pushState(null, "", `/?${this.query()}`);
    this.afterChange(true, "x" in patch || "y" in patch || "observables" in patch || "branches" in patch);
  }

  afterChange(whole, pinsToo, dragging = false) {
    if (whole) this.refresh();
    else { this.controls.update(this.view); this.simulations.update(this.view); this.away.update(); }
    this.remember();
    this.submit(dragging);
    if (pinsToo) this.pins.forEach((pin) => this.askPin(pin));
  }

  /** Keep the view valid: only observables that exist, and in a plane a single one without dimensions. */
  repair() {
    const known = existing(this.description, this.view.values), names = known.map((o) => o.name);
    let shown = this.view.observables.filter((n) => names.includes(n));
    if (!shown.length) shown = known.filter((o) => o.predicted).concat(known).slice(0, 1).map((o) => o.name);
    if (this.view.y) {
      const flat = shown.filter((n) => !this.declarations.observables[n].dims.length && this.declarations.observables[n].predicted);
      shown = [flat[0] ?? known.find((o) => !o.dims.length && o.predicted)?.name ?? shown[0]];
    }
    this.view.observables = shown;
    if (!this.description.has_branches) this.view.branches = false;
  }

  toggle(name) {
    const shown = this.view.observables;
    const next = this.view.y ? [name] : shown.includes(name) ? shown.filter((n) => n !== name) : this.order([...shown, name]);
    if (next.length) this.change({ observables: next }, false);
    else announce("At least one observable must be shown.");
  }

  order(names) {
    return this.description.observables.map((o) => o.name).filter((n) => names.includes(n));
  }

  // --- pins -----------------------------------------------------------------------------------------------------------

  pin() {
    if (!this.answer || this.view.y) return;
    const taken = new Set(this.pins.map((p) => p.colour));
    const colour = Array.from({ length: MOST_PINS }, (_, k) => k + 1).find((k) => !taken.has(k));
    if (colour === undefined) return this.say(`${MOST_PINS} curves are pinned; unpin one first.`);
    const { points, faded } = this.simulations.points(this.view);
    this.pins.push({ values: { ...this.view.values }, answer: this.answer, points: faded ? [] : points, key: physics(this.view), colour });
    if (this.answer.draft) this.askPin(this.pins.at(-1));
    announce("Pinned.");
    this.looksOtherwise();
  }

  unpin(k) {
    this.pins.splice(k, 1);
    announce("Unpinned.");
    this.looksOtherwise();
    this.pinButton.focus();
  }

  /** The same curve in another look: redraw it, and update link and program. */
  looksOtherwise() {
    this.redraw();
    this.remember();
    this.away.update();
  }

  askPin(pin) {
    const view = { ...structuredClone(this.view), values: pin.values };
    if (view.y || !this.description.has_theory) return;
    if (pin.key !== physics(view)) pin.points = [];
    pin.ask ??= api.latest((v, sequence, signal) => api.theory(forServer(v), `pin-${pin.colour}`, sequence, signal), (v, answer) => {
      if (!answer) return;
      pin.answer = normal(answer);
      pin.key = physics(v);
      this.redraw();
    });
    pin.ask(view);
  }

  // --- asking and drawing ---------------------------------------------------------------------------------------------

  askAll() {
    this.submit(false);
    this.pins.forEach((pin) => this.askPin(pin));
  }

  /** Request the curve; if it is slow, a coarse one while the slider moves and the full one when it stops. */
  submit(dragging) {
    const view = structuredClone(this.view);
    clearTimeout(this.full);
    this.full = 0;
    if (dragging && this.coarse && view.x && !view.y && view.x.points > this.coarse) {
      view.x.points = this.coarse;
      this.full = setTimeout(() => this.submit(false), 250);
    }
    this.ask(view);
    this.wait();
  }

  /** Show that a curve is being computed, but only if it takes long enough to be noticed. */
  wait() {
    this.waiting ??= [
      setTimeout(() => this.figure.classList.add("waits"), 250),
      setTimeout(() => {
        const begun = Date.now() - 900;
        const update = () => { this.status.textContent = `Compiling this theory, ${Math.round((Date.now() - begun) / 1000)} s so far. This happens once for each choice; then curves take milliseconds.`; };
        update();
        announce("Compiling this theory for the first time.");
        this.waiting?.push(setInterval(update, 1000));
      }, 900),
    ];
  }

  waited() {
    this.waiting?.forEach(clearTimeout);
    this.waiting = null;
    this.figure.classList.remove("waits");
  }

  answered(view, answer, refusal, more) {
    if (!more) this.waited();
    if (refusal) {
      const field = refusal.field;
      const placed = field && (this.axes.refuse(field, refusal.message) || this.controls.refuse(field, refusal.message));
      if (!placed && ["sizes", "seeds", "simulated"].includes(field)) this.simulations.refuse(refusal.message);
      else this.say(placed ? "" : refusal.message, refusal.status === 0);
      this.status.textContent = "The curve shown is for the last allowed values.";
      return;
    }
    this.controls.refuse(null, "");
    this.simulations.refuse("");
    this.say("");
    this.answer = normal(answer);
    this.answerView = view;
    if (view.x?.points === this.view.x?.points) this.coarse = answer.seconds > SLOW ? answer.coarse : 0;
    this.redraw();
    if (answer.draft) this.askExact(view);
    if (!this.lectern.veil) announce(sentence(this.answer, view));
  }

  say(text, retry = false) {
    this.trouble.hidden = !text;
    this.trouble.replaceChildren(text, ...(retry && text ? [" ", h("button", { type: "button", onclick: () => this.askAll() }, "Try again")] : []));
  }

  curves() {
    const view = this.answerView ?? this.view, values = [view.values, ...this.pins.map((p) => p.values)]; // named as what is drawn
    const named = (v) => difference(v, values, view.x?.field, words);
    const simulated = this.simulations.points(this.view), { faded } = simulated;
    // Points at other values are faded, and hidden if their curve is pinned together with them.
    const points = faded && this.pins.some((p) => p.key === simulated.key && p.points?.length) ? [] : simulated.points;
    const current = { name: this.pins.length ? named(view.values) || "current" : "", colour: 0, answer: completed(this.answer, points, view, this.description), points, faded };
    const pinned = view.y ? [] : this.pins.map((p) => ({ name: named(p.values) || "pinned", colour: p.colour, answer: completed(p.answer, p.points ?? [], view, this.description), points: p.points ?? [] }));
    return [current, ...pinned];
  }

  /** Draw at most once per frame. */
  redraw() {
    if (this.drawing) { this.stale = true; return; }
    this.drawing = true;
    requestAnimationFrame(async () => {
      try {
        await this.paint();
      } catch (problem) {
        this.say(`The plot could not be drawn: ${problem.message}.`);
      }
      this.drawing = false;
      if (this.stale) { this.stale = false; this.redraw(); }
    });
  }

  async paint() {
    if (!this.plot.isConnected || (!this.answer && this.description.has_theory)) return;
    const view = this.answerView ?? this.view, curves = this.curves(), draft = Boolean(this.answer?.draft);
    this.figure.classList.toggle("draft", draft);
    const preview = (view.x?.points ?? 0) < (this.view.x?.points ?? 0);
    const figure = await draw(this.plot, { view, curves, declarations: this.declarations, logarithmic: this.logarithmic, preview, map: this.map, veil: this.lectern.veil, legend: this.legend, pins: view.y ? [] : this.pins, unpin: (k) => this.unpin(k) });
    this.mapTick.hidden = Boolean(view.x) || !curves[0].answer.series.length || !planeOf(curves[0].answer.series[0], curves[0].answer);
    this.plot.setAttribute("aria-label", this.lectern.veil ? HIDDEN : sentence(curves[0].answer, view));
    this.lectern.drawn();
    const bare = !figure.panels.length;
    this.empty.hidden = !bare;
    if (bare) this.empty.replaceChildren(h("p", {}, this.answer?.note ? `${this.answer.note.charAt(0).toUpperCase()}${this.answer.note.slice(1)}` : "None of these observables has a theory."), h("p", { class: "quiet" }, "Press Simulate below; points are drawn here as they arrive."), (this.kept ??= keptFigure(this.description.id)));
    this.figure.classList.toggle("bare", bare);
    this.pinButton.disabled = Boolean(view.y) || bare;
    this.showStatus(curves[0].answer);
    if (this.values.open) this.showTable();
    const settled = JSON.stringify(view) === JSON.stringify(this.view) && !draft; // neither a preview nor an older view
    document.dispatchEvent(new CustomEvent("drawn", { detail: { values: { ...view.values }, settled } }));
  }

  showStatus(answer) {
    const kinds = new Map();
    for (const s of answer.series) kinds.set(s.status, [...new Set([...(kinds.get(s.status) ?? []), words(s.observable)])]);
    const parts = [...kinds].map(([status, names]) => `${names.join(", ")} ${names.length > 1 ? "are" : "is"} ${STATUS[status] ?? status}`);
    if (answer.note && answer.series.length && this.description.has_theory) parts.push(answer.note.replace(/\.$/, ""));
    const partly = answer.partly ?? 0, out = answer.not_converged - partly;
    const counted = (n, plain, one, many) => (n ? `${n} ${n === 1 ? "point" : "points"} ${plain} ${n === 1 ? one : many}.` : "");
    const missing = [
      counted(out, "did not converge and", "is left out", "are left out"),
      counted(partly, "did not converge to the end and", "is drawn up to where it failed", "are drawn up to where they failed"),
    ].filter(Boolean).join(" ");
    const took = answer.seconds ? ` ${answer.compiled ? "Compiled and computed" : "Computed"} in ${answer.seconds < 1 ? `${number(answer.seconds * 1000, 2)} ms` : `${number(answer.seconds, 2)} s`}.` : "";
    const text = parts.length ? `${parts.join("; ")}.` : "";
    this.status.replaceChildren(text.charAt(0).toUpperCase() + text.slice(1), missing ? h("strong", {}, ` ${missing}`) : "", h("span", { class: "quiet" }, took));
  }

  showTable() {
    if (!this.values.open || !this.answer) return;
    this.values.querySelector(".scroll, p")?.remove();
    this.values.append(table(this.answer, this.answerView));
  }

  /** Update everything around the plot to match the view. */
  refresh() {
    const view = this.view, shown = existing(this.description, view.values);
    const offered = view.y ? shown.filter((o) => !o.dims.length && o.predicted) : shown;
    this.chips.replaceChildren(...offered.map((o) => h("button", {
      type: "button", class: "chip", "aria-pressed": String(view.observables.includes(o.name)), title: o.meaning, "data-observable": o.name,
      onclick: () => { this.toggle(o.name); this.chips.querySelector(`[data-observable="${o.name}"]`)?.focus(); },
    }, words(o.name), o.symbol_mathml ? h("span", { class: "symbol", html: o.symbol_mathml }) : null)));
    this.logBox.checked = this.logarithmic;
    this.logBox.parentElement.hidden = Boolean(view.y);
    this.branchBox.checked = view.branches;
    this.controls.update(view);
    this.axes.update(view);
    this.simulations.update(view);
    this.away.update();
  }
}

/** The claims of the papers with their verdicts, and the numbers folded away. */
function ledger(claims) {
  const signs = { true: "✓", false: "✗", null: "?" };
  const lines = claims.map((c) => h("li", {},
    h("span", { class: `verdict ${c.verdict}` }, c.verdict), h("div", { class: "claim" }, h("div", { html: c.sentence_html }),
      h("details", {}, h("summary", {}, c.numbers.length ? "the numbers" : "what is missing"),
        h("ul", {}, c.numbers.map((n) => h("li", {}, `${signs[n.holds]} `, h("span", { html: n.text_html })))),
        Object.entries(c.notes_html).map(([name, text]) => h("p", {}, `${name}: `, h("span", { html: text }))),
        h("p", { class: "quiet" }, c.paper, c.command ? [". Shown by ", h("code", {}, c.command)] : null)))));
  return [h("h2", { id: "claims-title" }, "What the papers claim"), h("ul", { class: "ledger" }, lines)];
}

function about(d) {
  const papers = (d.references ?? []).map((r) => {
    const text = typeof r === "string" ? r : r.text, url = typeof r === "string" ? null : r.url;
    return h("li", {}, url ? h("a", { href: url, target: "_blank", rel: "noopener noreferrer" }, text) : text);
  });
  return h("section", { class: "setup", "aria-labelledby": "setup-title" }, h("h2", { id: "setup-title" }, "The set-up"), h("div", { class: "prose", html: d.about_html ?? "" }),
    papers.length ? [h("h3", {}, "References"), h("ul", { class: "papers" }, papers)] : null);
}
