// The page of a stored study, opened with `solvable explore RUN`, with its own grid and points.

import * as api from "./api.js";
import { completed, normal, unrolled } from "./answers.js";
import { announce, h, number, settled, unique, words } from "./dom.js";
import { draw, sentence, soon, table } from "./plot.js";
import { agreement } from "./simulate.js";
import { takeaway } from "./takeaway.js";

/** The page of the opened study, in the state that the query string describes. */
export async function studyPage(query) {
  soon();
  const study = await api.study();
  const description = await api.model(study.model);
  return new StudyPage(study, description, query);
}

class StudyPage {
  constructor(study, description, query) {
    this.study = study;
    this.description = description;
    this.title = study.title;
    this.observables = study.observables.map((o) => (typeof o === "string" ? { name: o, dims: [] } : o));
    this.declarations = { fields: Object.fromEntries(description.fields.map((f) => [f.name, f])), observables: Object.fromEntries(this.observables.map((o) => [o.name, o])) };
    this.ask = api.latest((request) => api.studySeries(request), (...settled) => this.answered(...settled));
    this.remember = settled(200, () => history.replaceState(null, "", `/?${this.query()}`));
    this.resized = settled(120, () => this.redraw());
    this.read(query);
    this.away = takeaway({ reproducible: false, current: () => ({ view: this.request(true), job: null, link: `${location.origin}/?${this.query()}` }) });
    this.build();
  }

  read(query) {
    const params = new URLSearchParams(query), names = this.observables.map((o) => o.name), dims = this.study.dims;
    this.shownNames = (params.get("show") ?? "").split(",").filter((n) => names.includes(n));
    if (!this.shownNames.length) this.shownNames = names.slice(0, 1);
    const numeric = Object.keys(dims).filter((d) => dims[d].length > 1 && dims[d].every((v) => typeof v === "number"));
    const own = this.observables.some((o) => this.shownNames.includes(o.name) && o.dims.length);
    this.steer = Object.fromEntries(["lines", "by"].filter((w) => params.get(w)).map((w) => [w, params.get(w)])); // for exported figures
    const given = params.get("x") ?? params.get("along")?.split(",")[0];
    this.x = given ? (given === "none" ? null : given) : own ? null : numeric.sort((a, b) => dims[b].length - dims[a].length)[0] ?? null;
    this.at = Object.fromEntries(Object.keys(dims).map((d) => [d, dims[d][0]]));
    for (const part of (params.get("at") ?? "").split(",").filter(Boolean)) {
      const [dim, text] = part.split(":"), found = dims[dim]?.find((v) => String(v) === text);
      if (found !== undefined) this.at[dim] = found;
    }
    this.logarithmic = params.get("axis") === "log" || (params.get("log") ?? "").includes("y");
  }

  query() {
    const query = new URLSearchParams({ study: "1", x: this.x ?? "none", show: this.shownNames.join(",") });
    const fixed = Object.entries(this.at).filter(([d]) => d !== this.x).map(([d, v]) => `${d}:${v}`).join(",");
    if (fixed) query.set("at", fixed);
    for (const [word, value] of Object.entries(this.steer)) query.set(word, value);
    if (this.logarithmic) query.set("axis", "log");
    return query.toString().replaceAll("%3A", ":").replaceAll("%2C", ",");
  }

  request(whole = false) {
    const at = Object.fromEntries(Object.entries(this.at).filter(([d]) => d !== this.x));
    const series = { x: this.x, observables: this.shownNames, at };
    const steer = { ...this.steer, ...(this.x && !this.steer.lines?.includes(this.x) && !this.steer.by?.includes(this.x) ? { along: this.x } : {}), ...(this.logarithmic ? { log: "y" } : {}) };
    return whole ? { study: true, model: this.study.model, observables: this.shownNames, ...steer } : series;
  }

  build() {
    const s = this.study, id = unique("along"), dims = Object.keys(s.dims);
    this.chips = h("div", { class: "chips observables", role: "group", "aria-label": "Observables" });
    this.legend = h("ul", { class: "legend" });
    this.plot = h("div", { class: "plot", role: "img", "aria-label": "The curve will be drawn here." });
    this.status = h("p", { class: "status" });
    this.trouble = h("p", { class: "refusal", role: "alert", hidden: true });
    this.values = h("details", { class: "astable", ontoggle: () => this.showTable() }, h("summary", {}, "Values as a table"));
    const axis = h("select", { id, onchange: () => { this.x = axis.value || null; this.change(); } }, dims.map((d) => h("option", { value: d }, words(d))), h("option", { value: "" }, "no sweep"));
    const log = h("input", { type: "checkbox", onchange: () => { this.logarithmic = log.checked; this.redraw(); this.remember(); } });
    this.selects = dims.map((d) => {
      const name = unique(d), select = h("select", { id: name, onchange: () => { this.at[d] = s.dims[d][select.selectedIndex]; this.change(); } }, s.dims[d].map((v) => h("option", {}, number(v))));
      const symbol = this.declarations.fields[d]?.symbol_mathml;
      return { d, select, element: h("div", { class: "control" }, h("div", { class: "head" }, h("label", { for: name }, words(d), symbol ? h("span", { class: "symbol", html: symbol }) : null)), select) };
    });
    this.verdict = h("div", { class: "verdict" });
    this.sync = () => {
      if (s.agreement) this.verdict.replaceChildren(agreement(s.agreement, this.shownNames));
      axis.value = this.x ?? "";
      log.checked = this.logarithmic;
      for (const { d, select, element } of this.selects) {
        select.selectedIndex = s.dims[d].indexOf(this.at[d]);
        element.hidden = d === this.x;
      }
      this.chips.replaceChildren(...this.observables.map((o) => h("button", { type: "button", class: "chip", "aria-pressed": String(this.shownNames.includes(o.name)), title: o.meaning ?? "", "data-observable": o.name,
        onclick: () => { this.toggle(o.name); this.chips.querySelector(`[data-observable="${o.name}"]`)?.focus(); } }, words(o.name), o.symbol_mathml ? h("span", { class: "symbol", html: o.symbol_mathml }) : null)));
    };
    const sizes = `${s.sizes.length ? `sizes ${s.sizes.join(", ")}` : "no sizes"}, ${s.seeds} ${s.seeds === 1 ? "seed" : "seeds"}`;
    const differs = Object.entries(s.differs ?? {});
    const fixed = Object.entries(s.values ?? {}).filter(([n]) => !(n in s.dims));
    this.element = h("div", { class: "model study" },
      h("div", { class: "title" }, h("h1", {}, s.title), h("p", {}, `Stored study “${s.name}”: ${sizes}. `, h("span", { class: "badge pair" }, "stored study"), s.missing ? h("strong", {}, ` ${s.missing} cells have not been computed yet.`) : "")),
      h("div", { class: "layout" }, h("div", { class: "bench" },
        h("div", { class: "stage" },
          h("figure", { class: "hero" }, this.chips, this.legend, h("div", { class: "canvas" }, this.plot), h("div", { class: "axes" }, h("div", { class: "sweep" }, h("div", { class: "which" }, h("label", { for: id }, "Horizontal axis"), axis))),
            h("div", { class: "tools" }, h("label", { class: "tick" }, log, "logarithmic values")), h("figcaption", {}, this.trouble, this.status, this.values)),
          s.agreement ? h("section", { class: "simulate" }, h("h2", {}, "Agreement"), this.verdict) : null, this.away.element),
        h("section", { class: "panel", "aria-label": "The study" }, h("div", { class: "controls" }, this.selects.length ? h("h3", {}, "Swept in this study") : null, this.selects.map((r) => r.element),
          fixed.length ? [h("h3", {}, "Held fixed"), h("dl", { class: "fixed" }, fixed.map(([n, v]) => [h("dt", {}, words(n)), h("dd", {}, number(v))]))] : null,
          differs.length ? [h("h3", {}, "Differs within the study"), h("dl", { class: "fixed differs" }, differs.map(([n, where]) => [h("dt", {}, words(n)), h("dd", {}, Object.entries(where).map(([name, v]) => h("div", {}, `${name}: ${number(v)}`)))]))] : null),
          h("a", { class: "button", href: `/?model=${encodeURIComponent(s.model)}`, "data-route": true }, "Explore the model itself"))),
        h("section", { class: "setup", "aria-labelledby": "setup-title" }, h("h2", { id: "setup-title" }, "The set-up"), h("div", { class: "prose", html: this.description.about_html ?? "" }))));
  }

  shown() { this.change(false); }

  accepts(id, query) { return !id && query.has("study"); }

  restore(query) { this.read(query); this.change(false); }

  close() { window.Plotly?.purge?.(this.plot); }

  toggle(name) {
    const next = this.shownNames.includes(name) ? this.shownNames.filter((n) => n !== name) : [...this.shownNames, name];
    if (!next.length) return announce("At least one observable must be shown.");
    this.shownNames = this.observables.map((o) => o.name).filter((n) => next.includes(n));
    this.change();
  }

  change(remember = true) {
    this.sync();
    if (remember) this.remember();
    this.ask(this.request());
    this.away.update();
  }

  answered(request, answer, refusal) {
    this.trouble.hidden = !refusal;
    this.trouble.textContent = refusal ? refusal.message : "";
    if (refusal) return;
    const points = unrolled(answer.points ?? [], request.x, answer.x?.values ?? []);
    const values = this.study.dims[request.x], scale = this.declarations.fields[request.x]?.scale ?? "linear";
    this.view = { model: this.study.model, x: request.x && values ? { field: request.x, scale: scale === "log" && values.every((v) => v > 0) ? "log" : "linear" } : null, y: null, observables: request.observables, values: {} };
    this.answer = completed(normal(answer), points, this.view, { ...this.description, coordinates: answer.coordinates });
    this.points = points;
    this.redraw();
    announce(sentence(this.answer, this.view));
  }

  async redraw() {
    if (!this.answer || !this.plot.isConnected) return;
    const curves = [{ name: "", colour: 0, answer: this.answer, points: this.points }];
    await draw(this.plot, { view: this.view, curves, declarations: this.declarations, logarithmic: this.logarithmic, legend: this.legend });
    this.plot.setAttribute("aria-label", sentence(this.answer, this.view));
    const statuses = [...new Set(this.answer.series.map((s) => `${words(s.observable)}: ${s.status}`))].join("; ");
    const stored = this.view.x && this.answer.series.some((s) => s.stored) ? " The theory is shown at the points of this study, joined by straight lines." : "";
    this.status.textContent = statuses ? `${statuses.charAt(0).toUpperCase()}${statuses.slice(1)}.${stored}` : "";
    if (this.values.open) this.showTable();
    document.dispatchEvent(new CustomEvent("drawn", { detail: { values: {} } }));
  }

  showTable() {
    if (!this.values.open || !this.answer) return;
    this.values.querySelector(".scroll, p")?.remove();
    this.values.append(table(this.answer, this.view));
  }
}
