// Simulations: start one, show its points as they arrive, cancel it, and report the agreement with the theory.

import * as api from "./api.js";
import { announce, h, number, settled, typed, unique, words } from "./dom.js";
import { sizeSlider } from "./sizes.js";
import { defaults, forServer } from "./state.js";

const VERDICTS = {
  agree: ["✓", "Theory and simulation agree within their errors."],
  "finite-size": ["↘", "They differ by a finite-size correction that decreases as declared."],
  inconclusive: ["?", "Too noisy to decide; use more seeds or larger sizes."],
  disagree: ["✗", "They differ by more than errors and finite size can explain."],
};

/** The key of a simulation: the model's values and the axis, but not the number of points of the curve. */
export function physics(view) {
  const axis = view.x ? [view.x.field, view.x.from, view.x.to, view.x.scale] : null;
  return JSON.stringify([view.model, Object.entries(view.values).sort(), axis]);
}

/**
 * The panel. `current()` gives the view; `changed(patch)` changes sizes and seeds; `redraw()` is called when points arrive.
 * `points(view)` returns the points to draw for a view: its own, or those at other values, faded.
 */
export function simulations(description, { current, changed, redraw }) {
  let job = null, stop = null, unwanted = false, closed = false;
  const jobs = new Map();
  const ids = { sizes: unique("sizes"), seeds: unique("seeds"), simulated: unique("simulated") };
  const sizes = h("input", { type: "text", id: ids.sizes, class: "box wide", autocomplete: "off", inputmode: "numeric" });
  const seeds = h("input", { type: "number", id: ids.seeds, class: "box", min: 1, max: 1000, step: 1 });
  const simulated = h("input", { type: "number", id: ids.simulated, class: "box", min: 1, max: 200, step: 1 });
  const start = h("button", { type: "button", class: "primary", onclick: run }, "Simulate");
  const quit = h("button", { type: "button", hidden: true, onclick: cancel }, "Cancel");
  const bar = h("progress", { max: 1, value: 0, "aria-label": "Progress of the simulation", hidden: true });
  const status = h("p", { class: "says", role: "status", "aria-live": "polite" });
  const refusal = h("p", { class: "refusal", role: "alert", hidden: true });
  const running = h("p", { class: "says elsewhere", role: "status" });
  const verdict = h("div", { class: "verdict" });
  const slider = sizeSlider(() => { showSizes(); redraw(); });
  const place = h("span", { class: "field" }, h("label", { for: ids.simulated }, "at points"), simulated);
  const element = h("section", { class: "simulate", "aria-labelledby": "simulate-title" },
    h("h2", { id: "simulate-title" }, "Simulate"),
    h("div", { class: "form" },
      h("span", { class: "field" }, h("label", { for: ids.sizes }, "sizes"), sizes),
      h("span", { class: "field" }, h("label", { for: ids.seeds }, "seeds"), seeds), place, start, quit),
    bar, status, running, refusal, verdict);
  const showSizes = () => { const own = jobs.get(physics(current())); slider.update(own ? [...own.points.values()] : [], own?.agreement, current().observables); };

  sizes.addEventListener("change", () => {
    const given = sizes.value.split(/[\s,;]+/).filter(Boolean).map(Number);
    if (!given.length || given.some((n) => !Number.isInteger(n) || n < 2)) return refuse(`sizes = ${JSON.stringify(sizes.value)} must be integers above 1, separated by commas.`);
    changed({ sizes: given });
  });
  seeds.addEventListener("change", () => {
    const given = Number(seeds.value);
    if (!Number.isInteger(given) || given < 1) return refuse(`seeds = ${JSON.stringify(seeds.value)} must be an integer above 0.`);
    changed({ seeds: given });
  });
  simulated.addEventListener("change", () => {
    const given = Number(simulated.value);
    if (!Number.isInteger(given) || given < 1) return refuse(`points = ${JSON.stringify(simulated.value)} must be an integer above 0.`);
    changed({ simulated: given });
  });

  function refuse(sentence) {
    refusal.hidden = !sentence;
    refusal.textContent = sentence;
  }

  const repaint = settled(60, redraw);

  async function run() {
    refuse("");
    const view = structuredClone(current());
    if (view.y) return refuse("Simulations run along one axis; set the vertical axis to none first.");
    busy(true);
    job = null;
    unwanted = false;
    status.textContent = "Starting…";
    try {
      const answer = await api.simulate(forServer(view));
      listen({ id: answer.job, cells: answer.cells, key: physics(view), view, points: new Map(), agreement: null, state: "running" });
      if (unwanted) await cancel();
    } catch (problem) {
      busy(false);
      status.textContent = "";
      refuse(problem.message);
      if (problem.status === 429) find();
    }
  }

  function listen(about) {
    stop?.();
    job = about;
    jobs.set(about.key, about);
    stop = api.events(about.id, (kind, payload) => handle(about, kind, payload));
  }

  /** Find the simulations of this session: those of this page before it was loaded again, or of a tab that was closed. */
  async function find() {
    let found;
    try { found = (await api.jobs()).jobs; } catch { return; /* the page works without it */ }
    if (closed || job?.state === "running") return;
    const open = found.find((j) => j.state === "running" || j.state === "waiting");
    if (open && open.view.model !== description.id) return elsewhere(open);
    const mine = open ?? found.find((j) => j.view.model === description.id && j.state !== "failed" && physics(restored(j.view)) === physics(current()));
    if (!mine) return;
    const view = restored(mine.view);
    if (open) { busy(true); status.textContent = "Running…"; }
    listen({ id: mine.job, cells: mine.cells, key: physics(view), view, points: new Map(), agreement: null, state: "running" });
  }

  const restored = (view) => ({ ...view, values: { ...defaults(description), ...view.values } });

  /** A simulation of another model is running: it can be opened or cancelled from here. */
  function elsewhere(other) {
    const open = h("a", { class: "button", href: `/?model=${encodeURIComponent(other.view.model)}`, "data-route": true }, "Open it");
    const end = h("button", { type: "button", onclick: async () => {
      end.disabled = true;
      try { await api.cancel(other.job); } catch (problem) { return refuse(problem.message); }
      api.events(other.job, (kind) => { if (["done", "failed", "cancelled"].includes(kind)) { running.replaceChildren(); refuse(""); } });
    } }, "Cancel it");
    running.replaceChildren(`A simulation of ${other.title ?? words(other.view.model)} is running: ${other.done} of ${other.cells} cells. `, open, " ", end);
  }

  async function cancel() {
    status.textContent = "Cancelling…";
    unwanted = true; // remembered if the server has not yet returned the job's id
    if (!job) return;
    try { await api.cancel(job.id); } catch (problem) { refuse(problem.message); }
  }

  function handle(about, kind, payload) {
    if (about !== job) return;
    if (kind === "progress" && !unwanted) {
      bar.max = payload.cells || 1;
      bar.value = payload.done;
      status.textContent = `${payload.done} of ${payload.cells} cells, ${number(payload.seconds, 2)} s`;
    } else if (kind === "points") {
      for (const p of Array.isArray(payload) ? payload : payload.points ?? [payload]) about.points.set(`${p.observable} ${p.size} ${p.x} ${p.y}`, p);
      showSizes();
      repaint();
    } else if (kind === "agreement") {
      about.agreement = payload;
    } else if (kind !== "progress") {
      if (kind === "failed" && unwanted) kind = "cancelled"; // the worker was stopped on request
      about.state = kind;
      for (const [name, point] of about.points) if (point.draft) about.points.delete(name); // nothing has replaced them
      busy(false);
      if (kind === "failed") { status.textContent = ""; refuse(payload.error ?? "The simulation failed."); }
      if (kind === "cancelled") status.textContent = about.points.size ? "Cancelled; the points so far are kept." : "Cancelled.";
      if (kind === "done") status.textContent = `Done${payload.seconds ? ` in ${number(payload.seconds, 2)} s` : ""}.`;
      redraw();
    }
    showVerdict();
  }

  function busy(now) {
    start.disabled = now;
    quit.hidden = bar.hidden = !now;
    if (now) { bar.removeAttribute("value"); quit.focus({ preventScroll: true }); }
    element.classList.toggle("running", now);
  }

  function showVerdict() {
    const shown = jobs.get(physics(current()));
    const rows = shown?.agreement?.rows ?? [];
    showSizes();
    if (!rows.length) return verdict.replaceChildren();
    const open = verdict.querySelector("details")?.open ?? false;
    verdict.replaceChildren(agreement(shown.agreement, current().observables));
    verdict.querySelector("details").open = open;
    if (shown.agreement !== showVerdict.announced) {
      showVerdict.announced = shown.agreement;
      announce(`Agreement: ${rows.map((r) => `${words(r.observable)} ${r.verdict}`).join(", ")}.`);
    }
  }

  return {
    element,
    slider: slider.element,
    refuse,
    find,
    update(view) {
      if (document.activeElement !== sizes) sizes.value = view.sizes.join(", ");
      if (document.activeElement !== seeds) seeds.value = typed(view.seeds);
      if (document.activeElement !== simulated) simulated.value = typed(view.simulated);
      place.hidden = !view.x || Boolean(view.y);
      if (!element.classList.contains("running")) start.disabled = Boolean(view.y);
      start.title = view.y ? "Simulations run along one axis; leave the phase diagram first" : "";
      showVerdict();
    },
    points(view) {
      const own = jobs.get(physics(view));
      if (own) return { points: slider.marked([...own.points.values()]), faded: false, job: own.state === "running" ? null : own.id };
      const last = [...jobs.values()].at(-1);
      const comparable = last && last.view.x?.field === view.x?.field;
      return { points: comparable ? [...last.points.values()] : [], faded: true, job: null, key: last?.key };
    },
    close() {
      closed = true;
      stop?.();
      if (job?.state === "running") api.cancel(job.id).catch(() => {});
    },
  };
}

/** One sentence for each observable on the screen, and the table of all comparisons folded away. */
export function agreement(result, shown) {
  const sign = (r) => VERDICTS[r.verdict]?.[0] ?? "·";
  const cells = (r) => h("tr", { class: `is-${r.verdict}` },
    h("th", { scope: "row" }, words(r.observable)),
    h("td", { title: VERDICTS[r.verdict]?.[1] ?? "" }, h("span", { class: "sign", "aria-hidden": "true" }, sign(r)), " ", r.verdict),
    h("td", { class: "number" }, number(r.z, 2)),
    h("td", { class: "number" }, String(r.points ?? "")),
    h("td", {}, Array.isArray(r.sizes) ? r.sizes.join(", ") : String(r.sizes ?? "")),
    h("td", { class: "number" }, String(r.seeds ?? "")));
  const here = result.rows.filter((r) => shown.includes(r.observable));
  const lines = here.map((r) => h("li", { class: `is-${r.verdict}` }, h("span", { class: "sign", "aria-hidden": "true" }, sign(r)), " ",
    h("strong", {}, `${words(r.observable).charAt(0).toUpperCase()}${words(r.observable).slice(1)}`), ` ${r.sentence}`));
  const explained = [...new Set(result.rows.map((r) => r.verdict))].filter((v) => VERDICTS[v]).map((v) => h("p", { class: "quiet" }, `${VERDICTS[v][0]} ${v}: ${VERDICTS[v][1]}`));
  return h("div", {}, h("ul", { class: "findings" }, lines),
    h("details", { class: "comparisons" }, h("summary", {}, result.rows.length > 1 ? `All ${result.rows.length} observables` : "As a table"), h("div", { class: "scroll" }, h("table", {},
      h("caption", {}, "z: the largest deviation in standard errors of a normal distribution; verdicts correct for the number of comparisons"),
      h("thead", {}, h("tr", {}, ["observable", "verdict", "z", "points", "sizes", "seeds"].map((t) => h("th", { scope: "col" }, t)))),
      h("tbody", {}, result.rows.map(cells))), explained)));
}
