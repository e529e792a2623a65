// Chooses the page from the address and keeps the back and forward buttons working.

import * as api from "./api.js";
import { h } from "./dom.js";
import { gallery } from "./gallery.js";
import { standing } from "./lecture.js";
import { appearance } from "./look.js";
import { modelPage } from "./model.js";
import { studyPage } from "./study.js";

const main = document.getElementById("main");
let page = null, turn = 0, listed = null;

const models = () => (listed ??= api.models().catch((problem) => { listed = null; throw problem; }));

/** Show the page of the address. `moved`: the reader followed a link, so the focus moves too. */
async function show(moved) {
  const mine = ++turn, query = new URLSearchParams(location.search), id = query.get("model");
  if (page?.accepts?.(id, query)) return page.restore(location.search);
  page?.close?.();
  page = null;
  standing(Boolean(id) && query.has("lecture"));
  // Images that are still loading would delay the next page: a browser opens only six connections.
  main.querySelectorAll("img").forEach((picture) => { if (!picture.complete) picture.removeAttribute("src"); });
  main.setAttribute("aria-busy", "true");
  const waiting = setTimeout(() => { if (mine === turn) main.replaceChildren(h("p", { class: "loading" }, "Opening…")); }, 150);
  try {
    const made = id ? await modelPage(id, location.search) : query.has("study") ? await studyPage(location.search) : await first(query);
    clearTimeout(waiting);
    if (mine !== turn) return made.close?.();
    page = made;
    main.replaceChildren(made.element);
    document.title = made.title ? `${made.title} · solvable` : "solvable";
    made.shown?.();
    if (moved) { scrollTo(0, 0); main.focus({ preventScroll: true }); }
  } catch (problem) {
    clearTimeout(waiting);
    if (mine === turn) main.replaceChildren(failure(problem));
  }
  main.removeAttribute("aria-busy");
}

async function first(query) {
  const tour = query.has("tour");
  return { element: await gallery(await models(), { tour }), title: tour ? "Tour" : "" };
}

function failure(problem) {
  return h("div", { class: "failure", role: "alert" }, h("h1", {}, problem.status === 404 ? "Not found" : "Something went wrong"), h("p", {}, problem.message),
    h("p", {}, h("button", { type: "button", class: "primary", onclick: () => show(false) }, "Try again"), " ", h("a", { class: "button", href: "/", "data-route": true }, "All models")));
}

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[data-route]");
  if (!link || event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  history.pushState(null, "", link.getAttribute("href"));
  show(true);
});
addEventListener("popstate", () => show(false));
addEventListener("resize", () => page?.resized?.());
appearance(() => page?.redraw?.());
show(false);
