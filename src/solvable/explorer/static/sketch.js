// A first drawing: axes and lines in the places where Plotly, a large library, will draw them once it is loaded.

import { number } from "./dom.js";

const SVG = "http://www.w3.org/2000/svg";

function part(kind, attributes, text) {
  const made = document.createElementNS(SVG, kind);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

/** Maps values to [0, 1] along an axis, and its ticks; null if no value can be placed. */
function placed(axis, values, room) {
  const log = axis.type === "log", onto = (v) => (log ? Math.log10(v) : v);
  const seen = values.filter((v) => typeof v === "number" && (!log || v > 0)).map(onto);
  if (axis.type === "category" || !seen.length) return null;
  let low = Math.min(...seen), high = Math.max(...seen);
  const around = room * (high - low || Math.abs(high) || 1);
  high += around;
  low = axis.rangemode === "tozero" && low >= 0 ? 0 : low - around;
  if (!(high > low)) return null; // a single point has no axis
  const step = 10 ** Math.floor(Math.log10((high - low) / 3)), every = [1, 2, 5].map((d) => d * step).find((d) => (high - low) / d < 7) ?? 10 * step;
  const even = Array.from({ length: 12 }, (_, k) => (Math.ceil(low / every) + k) * every);
  const ticks = axis.tickvals ?? (log ? [] : even);
  return { at: (v) => (onto(v) - low) / (high - low), ticks: ticks.filter((v) => onto(v) >= low - 1e-9 && onto(v) <= high + 1e-9) };
}

/** The figure's lines as an SVG of the final size. */
export function sketch({ traces, layout }, { ink, axis: stroke, scale, family }, width) {
  const drawn = part("svg", { class: "sketch", width, height: layout.height, "aria-hidden": "true", "font-family": family, "font-size": 13 * scale, fill: ink });
  const { l, r, t, b } = layout.margin, wide = width - l - r, high = layout.height - t - b;
  for (const suffix of new Set(traces.map((trace) => trace.xaxis?.slice(1)))) {
    const own = traces.filter((trace) => trace.mode?.startsWith("lines") && trace.xaxis === `x${suffix}`);
    const axisX = layout[`xaxis${suffix}`], axisY = layout[`yaxis${suffix}`];
    const x = axisX && placed(axisX, own.flatMap((trace) => trace.x), 0), y = axisY && placed(axisY, own.flatMap((trace) => trace.y), 0.055);
    if (!x || !y) continue;
    const [left, right] = axisX.domain.map((d) => l + d * wide), [bottom, top] = axisY.domain.map((d) => t + (1 - d) * high);
    const across = (v) => (left + x.at(v) * (right - left)).toFixed(1), up = (v) => (bottom + y.at(v) * (top - bottom)).toFixed(1);
    drawn.append(part("path", { d: `M${left} ${top}V${bottom}H${right}`, fill: "none", stroke }));
    for (const v of x.ticks) drawn.append(part("text", { x: across(v), y: bottom + 20 * scale, "text-anchor": "middle" }, number(v, 3)));
    for (const v of y.ticks) drawn.append(part("text", { x: left - 8, y: up(v), "text-anchor": "end", "dominant-baseline": "middle" }, number(v, 3)));
    for (const trace of own) {
      let pen = "M", d = "";
      trace.y.forEach((v, i) => {
        const shown = typeof v === "number" && Number.isFinite(y.at(v)) && Number.isFinite(x.at(trace.x[i]));  // no time zero on a log axis
        if (shown) d += `${pen}${across(trace.x[i])} ${up(v)}`;
        pen = shown ? "L" : "M";
      });
      drawn.append(part("path", { d, fill: "none", stroke: trace.line.color, "stroke-width": trace.line.width, opacity: trace.opacity ?? 1 }));
    }
  }
  return drawn;
}
