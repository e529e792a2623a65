// The first page: an introduction in two sentences, and all models with a search box and filters by family.

import * as api from "./api.js";
import { h, announce } from "./dom.js";
import { plotly } from "./plot.js";
import { shelf, stories as lectures } from "./story.js";
import { stories, cards } from "./tour.js";

/** The gallery; with `tour`, the tour comes first. */
export async function gallery(listing, { tour = false } = {}) {
  const [tourStories, lectureStories] = await Promise.all([stories(), lectures()]);
  let chosen = null;
  const search = h("input", { type: "search", id: "search", placeholder: "perceptron, attention, double descent…", autocomplete: "off", oninput: filter });
  const titles = new Map(listing.models.map((m) => [m.family, m.family_title]));
  const families = [...titles.keys()];
  const chips = [null, ...families].map((f) => h("button", { type: "button", class: "chip", "aria-pressed": String(f === chosen), onclick: () => { chosen = f; filter(); } }, f === null ? "All" : titles.get(f)));
  const count = h("p", { class: "quiet count", role: "status", "aria-live": "polite" });
  const items = listing.models.map((m) => ({ ...m, element: card(m), text: `${m.id} ${m.title} ${m.sentence} ${m.family_title} ${m.badge}`.toLowerCase(), setup: "", rank: 0 }));
  const list = h("ul", { class: "cards" }, items.map((i) => i.element));
  const nothing = h("div", { class: "empty", hidden: true }, h("p", {}, "No model matches."),
    h("button", { type: "button", onclick: () => { search.value = ""; chosen = null; filter(); search.focus(); } }, "Show all models"));

  function filter() {
    const wanted = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const item of items) {
      // Words of the card match anywhere, those of the set-up from their beginning.
      const own = wanted.every((w) => item.text.includes(w)), fits = own || wanted.every((w) => item.text.includes(w) || item.setup.includes(` ${w}`));
      item.rank = own ? 0 : 1;
      item.element.hidden = !fits || (chosen !== null && item.family !== chosen);
      shown += !item.element.hidden;
    }
    list.append(...[...items].sort((a, b) => a.rank - b.rank).map((item) => item.element));
    chips.forEach((chip, k) => chip.setAttribute("aria-pressed", String([null, ...families][k] === chosen)));
    nothing.hidden = shown > 0;
    count.textContent = shown === 1 ? "1 model" : `${shown} models`;
    if (!shown) announce("No model matches.");
  }

  const journey = h("section", { class: "tour", "aria-labelledby": "tour-title" }, h("h2", { id: "tour-title", tabindex: "-1" }, "A tour in three stories"), cards(tourStories));
  const models = h("section", { "aria-labelledby": "models-title" },
    h("div", { class: "shelf" }, h("h2", { id: "models-title" }, "Models"), count,
      h("div", { class: "find" }, h("label", { for: "search", class: "hidden" }, "Search the models"), search),
      h("div", { class: "chips", role: "group", "aria-label": "Families" }, chips)),
    list, nothing);
  const opened = listing.study
    ? h("p", { class: "banner" }, "A stored study is open: ", h("a", { href: "/?study=1", "data-route": true }, listing.study.title ?? listing.study.name ?? "show it"), ".") : null;
  const hello = h("div", { class: "hello" }, h("h1", {}, tour ? "The tour" : "Exactly solvable models of learning"),
    h("p", {}, "Each model pairs a task with a learner whose behaviour physics predicts exactly when the dimension is large. Move a control and the predicted curve follows at once; press Simulate and finite realisations, with error bars, appear on the same axis."));
  filter();
  // The words of the set-ups come later; the search works without them.
  api.searchWords().then(({ words }) => {
    for (const item of items) item.setup = ` ${words[item.id] ?? ""}`;
    filter();
  }).catch(() => {});
  const page = h("div", { class: "gallery" }, hello, opened, tour ? [journey, shelf(lectureStories), models] : [models, journey, shelf(lectureStories)]);
  // A reader who points at a model will soon need the plotting library.
  const reach = () => plotly().catch(() => {});
  for (const kind of ["pointerover", "focusin"]) for (const shelf of [list, journey]) shelf.addEventListener(kind, reach, { once: true });
  return page;
}

function card(m) {
  const experiment = m.badge === "experiment";
  const picture = h("img", { src: m.thumbnail, alt: "", loading: "lazy", decoding: "async", width: 480, height: 300 });
  picture.addEventListener("load", () => picture.parentElement.classList.add("drawn"));
  picture.addEventListener("error", () => picture.remove());
  return h("li", {}, h("a", { class: "card", href: `/?model=${encodeURIComponent(m.id)}`, "data-route": true, "data-model": m.id },
    h("span", { class: "picture" }, picture),
    h("span", { class: "about" }, h("strong", {}, m.title), h("span", { class: "sentence", html: m.sentence_html }),
      h("span", { class: "tags" }, h("span", { class: `badge ${experiment ? "experiment" : "pair"}` }, m.badge), h("span", { class: "quiet" }, m.family_title)))));
}
