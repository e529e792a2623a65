// A slider over the simulated sizes: one size at a time is drawn in full, so that its points are seen to approach the curve.

import { h, number, unique, words } from "./dom.js";

/** The slider; `changed()` is called when another size is chosen. Its last position shows all sizes. */
export function sizeSlider(changed) {
  const id = unique("size"), rail = h("input", { type: "range", id, min: 0, max: 1, step: 1, value: 1 });
  const says = h("span", { class: "quiet", role: "status", "aria-live": "polite" });
  const element = h("div", { class: "sizes", hidden: true }, h("label", { for: id }, "size"), rail, says);
  let sizes = [], all = true;
  rail.addEventListener("input", () => { all = Number(rail.value) >= sizes.length; changed(); });

  const chosen = () => (all || !sizes.length ? null : sizes[Number(rail.value)]);

  /** The points, those of other sizes marked as `dim`. */
  function marked(points) {
    const size = chosen();
    return size === null ? points : points.map((p) => (p.size === size ? p : { ...p, dim: true }));
  }

  /** Follow the sizes that have points, and say how far from the theory those of the chosen size are. */
  function update(points, agreement, shown) {
    const found = [...new Set(points.map((p) => p.size))].sort((a, b) => a - b);
    if (String(found) !== String(sizes)) {
      sizes = found;
      rail.max = sizes.length;
      rail.value = all ? sizes.length : Math.min(Number(rail.value), sizes.length);
      all = Number(rail.value) >= sizes.length;
    }
    element.hidden = sizes.length < 2;
    rail.style.setProperty("--filled", `${(100 * Number(rail.value)) / Math.max(sizes.length, 1)}%`);
    const text = chosen() === null ? `all sizes: ${sizes.join(", ")}` : `${chosen()}${distances(agreement, shown, chosen())}`;
    rail.setAttribute("aria-valuetext", text);
    if (says.textContent !== text) says.textContent = text;
  }

  return { element, marked, update };
}

/** For each shown observable the mean distance of the points from the theory, beside their mean error. */
function distances(agreement, shown, size) {
  const parts = (agreement?.rows ?? []).filter((r) => shown.includes(r.observable)).map((r) => {
    const here = r.distances?.find((d) => d.size === size);
    return here ? `${words(r.observable)} is ${number(here.distance, 2)} from the theory, with errors of ${number(here.error, 2)}` : null;
  }).filter(Boolean);
  return parts.length ? `: ${parts.join("; ")}` : "";
}
