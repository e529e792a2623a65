// Stories for the lecture hall: written in TOML, checked by the server, told step by step in lecture mode.

import * as api from "./api.js";
import { h } from "./dom.js";

let kept = null;

/** The stories of the server; none if it does not answer. */
export function stories() {
  kept ??= api.stories().then((answer) => answer.stories).catch(() => { kept = null; return []; });
  return kept;
}

/** The address of a step. */
export const address = (story, step) => `/?${story.steps[step].query}&lecture=${story.id}&step=${step}`;

/** The story and the step of an address: nulls if there is none. */
export async function at(id, step) {
  const story = (await stories()).find((s) => s.id === id) ?? null;
  return { story, here: story?.steps[step] ?? null };
}

/** One card for each story, under a title. */
export function shelf(list) {
  if (!list.length) return null;
  return h("section", { class: "lectures", "aria-labelledby": "lectures-title" }, h("h2", { id: "lectures-title" }, "For the lecture hall"),
    h("ol", { class: "stories" }, list.map((story) => h("li", {}, h("a", { class: "story-card", href: address(story, 0), "data-route": true, "data-lecture": story.id },
      h("strong", {}, story.title), h("span", {}, story.promise || `${story.steps.length} steps`))))));
}
