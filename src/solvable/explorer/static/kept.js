// Kept figures: results that took hours are shown where a model without a curve would begin with an empty plot.

import * as api from "./api.js";
import { h } from "./dom.js";

/** The first kept figure of a model with its caption; an empty element if there is none. */
export function keptFigure(id) {
  const element = h("figure", { class: "kept", hidden: true });
  api.kept(id).then(({ figures: [first] }) => {
    if (!first) return;
    const picture = h("img", { src: `/figures/${encodeURIComponent(first.name)}.svg`, alt: "", decoding: "async" });
    picture.addEventListener("error", () => { element.hidden = true; });
    element.append(picture, h("figcaption", {}, h("span", { html: first.sentence_html }), " Kept results, drawn by ", h("code", {}, first.command), "."));
    element.hidden = false;
  }).catch(() => { /* the page works without it */ });
  return element;
}
