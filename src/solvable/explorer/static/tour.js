// The guided tour: stories stored as data, shown as cards on the first page and as captions above the plot.

import { h } from "./dom.js";

let kept = null;

/** The stories of /static/tour.json; none if it cannot be read. */
export function stories() {
  kept ??= fetch("/static/tour.json").then((a) => (a.ok ? a.json() : { stories: [] })).then((t) => t.stories).catch(() => []);
  return kept;
}

export const address = (story, step) => `/?${story.steps[step].query}&tour=${story.id}&step=${step}`;

/** One card per story. */
export function cards(list) {
  return h("ol", { class: "stories" }, list.map((story) => h("li", {}, h("a", { class: "story-card", href: address(story, 0), "data-route": true, "data-story": story.id },
    h("strong", {}, story.title), h("span", {}, story.promise)))));
}

/** The caption of a step, with links back and forward; null if the story is unknown. */
export async function caption(id, step) {
  const story = (await stories()).find((s) => s.id === id), here = story?.steps[step];
  if (!here) return null;
  const to = (k, text, attributes = {}) => (story.steps[k] ? h("a", { class: "button", href: address(story, k), "data-route": true, ...attributes }, text) : null);
  return h("aside", { class: "story", "aria-labelledby": "story-title" },
    h("div", {}, h("h2", { id: "story-title" }, `${story.title} `, h("span", { class: "quiet" }, `${step + 1} of ${story.steps.length}`)), h("p", {}, here.text)),
    h("div", { class: "ways" }, to(step - 1, "Back"), to(step + 1, "Next", { class: "button primary" }), story.steps[step + 1] ? null : h("a", { class: "button", href: "/?tour=all", "data-route": true }, "All stories")));
}
