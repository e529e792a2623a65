// Kept figures: results that took hours are shown where a model without a curve would begin with an empty plot.

import * as api from "./api.js";
import { h } from "./dom.js";

/** The first kept figure of a model with its caption; an empty element if there is none. */
export function keptFigure(id) {
  const element = h("figure", { class: "kept", hidden: true });
  api.kept(id).then(({ figures: [first] }) => {
    if (!first) return;
    const src = `/figures/${encodeURIComponent(first.name)}.svg`, picture = h("img", { src, alt: "", decoding: "async" });
    picture.addEventListener("error", () => { element.hidden = true; });
    // Many panels are small here; they are read in a window of their own.
    element.append(h("a", { href: src, target: "_blank", rel: "noopener", "aria-label": "The figure in its full size" }, picture), h("figcaption", {}, h("span", { html: first.sentence_html }), " Kept results, drawn by ", h("code", {}, first.command), "."));
    element.hidden = false;
  }).catch(() => { /* the page works without it */ });
  return element;
}
