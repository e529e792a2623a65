// The plot on the page: draws a composed figure with Plotly, its legend as HTML, and its values as a table.

import { h, number, words } from "./dom.js";
import { compose, extent, linesOf, MARKERS } from "./figure.js";
import { veiled } from "./prediction.js";
import { sketch } from "./sketch.js";

let loading = null;

/** Plotly, loaded once from our own server. */
export function plotly() {
  if (window.Plotly) return Promise.resolve(window.Plotly);
  loading ??= new Promise((done, fail) => {
    const script = h("script", { src: "/plotly.js" });
    script.onload = () => done(window.Plotly);
    script.onerror = () => { loading = null; script.remove(); fail(new Error("the plotting library could not be loaded")); };
    document.head.append(script);
  });
  return loading;
}

/** Load Plotly after a pause, so that it does not delay the first curve. */
export function soon() {
  setTimeout(() => plotly().catch(() => {}), 500);
}

const painted = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));

/** The current colours, type sizes and height from the page's style sheet; the lines of a long legend are taken from the height. */
export function look(element, legend) {
  const more = legend ? Math.max(0, legend.offsetHeight - (legend.firstElementChild?.offsetHeight ?? legend.offsetHeight)) : 0;
  const style = getComputedStyle(document.documentElement), ink = (name) => style.getPropertyValue(name).trim();
  const touch = matchMedia("(pointer: coarse)").matches, lecture = document.documentElement.dataset.lecture !== undefined;
  const narrow = element.clientWidth < 520, low = narrow && innerWidth < 700; // a phone
  return {
    ink: ink("--ink"), quiet: ink("--quiet"), grid: ink("--grid"), axis: ink("--axis"), paper: ink("--card"), gap: ink("--gap"),
    dark: ink("--dark") === "1", family: ink("--sans"), touch, low,
    scale: lecture ? parseFloat(style.fontSize) / 15 : (narrow ? 0.86 : 1) * (document.documentElement.dataset.type === "large" ? 1.28 : 1),
    height: lecture ? element.parentElement.clientHeight : (low ? Math.max(250, Math.min(320, innerHeight * 0.44)) : Math.max(330, Math.min(620, innerHeight * 0.48))) - Math.min(more, 120),
  };
}

/** Keep the place of a figure free until it is drawn, so that nothing below it moves. */
export function reserve(element, panels) {
  element.style.minHeight = `${extent(panels, element.clientWidth, look(element)).tall}px`;
}

/** Draw the figure in place of the previous one, its legend first; resolves when it is on the screen. */
export async function draw(element, input) {
  const { legend, pins = [], unpin = () => {} } = input;
  const composed = () => veiled(compose({ ...input, look: look(element, legend), width: element.clientWidth }), input.veil);
  if (!window.Plotly && !input.view.y) {
    element.replaceChildren(sketch(composed(), look(element), element.clientWidth));
    await painted();
    performance.mark("first curve");
  }
  const Plotly = await plotly(), tall = legend?.offsetHeight;
  let figure = composed();
  if (legend) showLegend(legend, figure, pins, unpin);
  if (legend?.offsetHeight !== tall) figure = composed();
  element.querySelector(":scope > .sketch")?.remove();
  element.style.minHeight = "";
  await Plotly.react(element, figure.traces, { ...figure.layout, width: element.clientWidth }, { displayModeBar: false, responsive: false, doubleClick: "reset", scrollZoom: false });
  // On a phone the plot stays visible while the controls below it are used, unless it would fill the screen.
  element.parentElement.classList.toggle("tall", figure.layout.height > 0.56 * innerHeight);
  return figure;
}

const DASHED = { solid: "", dash: "7 4", dot: "2 3", dashdot: "7 3 2 3" };
const SHAPES = {
  dash: "M9 6h18v2H9z", circle: "M14 7a4 4 0 1 0 8 0a4 4 0 1 0-8 0", square: "M14.5 3.5h7v7h-7z", "triangle-up": "M18 2.6l4.4 8h-8.8z", diamond: "M18 2l5 5-5 5-5-5z",
  "triangle-down": "M18 11.4l4.4-8h-8.8z", cross: "M16.4 2.5h3.2v2.9h2.9v3.2h-2.9v2.9h-3.2v-2.9h-2.9V5.4h2.9z", x: "M14.5 5l1.8-1.8L18 5l1.7-1.8L21.5 5 19.8 7l1.7 2-1.8 1.8L18 9l-1.7 1.8L14.5 9l1.7-2z",
};

function swatch(entry) {
  const holder = h("span", { class: "swatch", "aria-hidden": "true" });
  const drawn = entry.kind === "line"
    ? `<path d="M2 7h32" stroke="${entry.colour}" stroke-width="3" stroke-dasharray="${DASHED[entry.dash] ?? ""}" fill="none"/>`
    : `<path d="${SHAPES[entry.symbol] ?? SHAPES[MARKERS[0]]}" fill="${entry.colour}"/>`;
  holder.innerHTML = `<svg viewBox="0 0 36 14" width="36" height="14">${drawn}</svg>`;
  return holder;
}

/** The legend as a list; a pinned curve has a button to unpin it. */
function showLegend(element, figure, pins, unpin) {
  const lines = figure.legend.filter((e) => e.kind === "line"), mixed = lines.some((e) => !e.plain);
  const named = lines.map((e) => (e.plain ? { ...e, caption: mixed ? words(e.observable) : "theory" } : e));
  // Several panels with one plain curve each need a single entry, or none if nothing else is drawn.
  const kept = mixed ? named : named.slice(0, 1), points = figure.legend.filter((e) => e.kind !== "line");
  const shown = mixed || points.length ? [...kept, ...points] : [];
  const handled = new Set();
  element.replaceChildren(...shown.map((e) => {
    const item = h("li", {}, swatch(e), h("span", {}, e.caption));
    if (e.kind === "line" && e.curve > 0 && pins[e.curve - 1] && !handled.has(e.curve)) {
      handled.add(e.curve);
      item.append(h("button", { type: "button", class: "unpin", "aria-label": `Unpin ${e.caption}`, title: "Unpin", onclick: () => unpin(e.curve - 1) }, "×"));
    }
    return item;
  }));
}

/** The current curve as a table, also for screen readers. */
export function table(answer, view) {
  const lines = answer.series.flatMap((s) => linesOf(s, answer, view).map((line) => ({ ...line, name: s.observable })));
  if (!lines.length || view.y) return h("p", {}, "There is no table for a phase diagram; download the values as CSV below.");
  const axis = lines[0].axis, x = lines[0].x, same = lines.filter((l) => l.axis === axis).slice(0, 12);
  const head = h("tr", {}, h("th", { scope: "col" }, axis === null ? "" : words(axis)), same.map((l) => h("th", { scope: "col" }, [words(l.name), ...l.caption].join(", "))));
  const rows = x.map((value, i) => h("tr", {}, h("th", { scope: "row" }, axis === null ? "value" : number(value)), same.map((l) => h("td", {}, number(l.y[i], 5)))));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Values of the curve" }, h("table", { class: "values" }, h("thead", {}, head), h("tbody", {}, rows)));
}

/** One sentence about the current curve, for a screen reader. */
export function sentence(answer, view) {
  const parts = [];
  for (const series of answer.series.slice(0, 3)) {
    if (view.y) return `Phase diagram of ${words(series.observable)} over ${words(view.x.field)} and ${words(view.y.field)}.`;
    const [line] = linesOf(series, answer, view), seen = line.y.filter((v) => v !== null && v !== undefined);
    if (!seen.length) { parts.push(`${words(series.observable)}: no value converged`); continue; }
    if (line.axis === null) { parts.push(`${words(series.observable)} ${number(seen[0])}`); continue; }
    parts.push(`${words(series.observable)} from ${number(seen[0], 3)} to ${number(seen.at(-1), 3)}, lowest ${number(Math.min(...seen), 3)}, highest ${number(Math.max(...seen), 3)}`);
  }
  const first = answer.series[0] && linesOf(answer.series[0], answer, view)[0];
  const over = first?.axis ? ` along ${words(first.axis)} from ${number(first.x[0], 3)} to ${number(first.x.at(-1), 3)}` : "";
  return parts.length ? `${parts.join("; ")}${over}.` : "Nothing to show yet.";
}
