// Predict first: a curve is hidden, the audience sketches it with the pointer, and then the exact one is shown.

import { number, words } from "./dom.js";

const COLUMNS = 240;
const SVG = "http://www.w3.org/2000/svg";

/**
 * The distance of a sketch from a curve, both in fractions of the plot: `ink[k]` is the height of the sketch above column k
 * (NaN where nothing was drawn), `curve` a list of points [across, up] from left to right, with null where it has none.
 * Returns the mean and the largest vertical distance, where the largest is, and the share of the curve that was sketched.
 */
export function distance(ink, curve) {
  let sum = 0, count = 0, columns = 0, most = 0, where = null;
  for (let k = 0; k < ink.length; k++) {
    const x = k / (ink.length - 1), exact = heightAt(curve, x);
    if (exact === null) continue;
    columns += 1;
    if (!Number.isFinite(ink[k])) continue;
    const away = Math.abs(ink[k] - exact);
    sum += away;
    count += 1;
    if (where === null || away > most) [most, where] = [away, x];
  }
  return count ? { mean: sum / count, most, where, share: count / columns } : null;
}

/** The height of a curve above a place, on the straight line between its neighbouring points. */
function heightAt(curve, x) {
  for (let k = 1; k < curve.length; k++) {
    const a = curve[k - 1], b = curve[k];
    if (a === null || b === null || x < a[0] || x > b[0]) continue;
    return b[0] === a[0] ? b[1] : a[1] + ((b[1] - a[1]) * (x - a[0])) / (b[0] - a[0]);
  }
  return null;
}

/** A pad over the panel of one observable. `changed()` is called when the sketch begins, ends or is cleared. */
export function pad(plot, observable, changed) {
  let ink = new Float64Array(COLUMNS).fill(NaN), last = null, open = true, scales = "";
  const path = document.createElementNS(SVG, "path"), sheet = document.createElementNS(SVG, "svg");
  path.setAttribute("class", "sketched");
  sheet.setAttribute("class", "pad");
  sheet.setAttribute("role", "img");
  sheet.setAttribute("aria-label", `Sketch ${words(observable)} here with the pointer.`);
  sheet.append(path);
  sheet.toggleAttribute("hidden", true); // until its place is known
  plot.parentElement.append(sheet);

  /** The exact line of the observable as Plotly has it, with its axes; null before the first drawing. */
  function exact() {
    const trace = plot.data?.find((t) => t.meta?.curve === 0 && t.meta.observable === observable && t.mode?.startsWith("lines"));
    const layout = plot._fullLayout, axes = trace && layout && [layout[trace.xaxis.replace("x", "xaxis")], layout[trace.yaxis.replace("y", "yaxis")]];
    return axes?.[0] && axes[1] ? { trace, x: axes[0], y: axes[1] } : null;
  }

  /** Keep the pad over its panel, and the sketch where it was in units of the axes. */
  function place() {
    const found = exact();
    sheet.toggleAttribute("hidden", !found);
    if (!found) return;
    const { x, y } = found, now = JSON.stringify([x.type, x.range, y.type, y.range]);
    if (scales && scales !== now) ink = redrawn(ink, JSON.parse(scales), x, y);
    scales = now;
    Object.assign(sheet.style, { left: `${x._offset}px`, top: `${y._offset}px`, width: `${x._length}px`, height: `${y._length}px` });
    sheet.setAttribute("viewBox", `0 0 ${x._length} ${y._length}`);
    show(x._length, y._length);
  }

  function show(wide, high) {
    let d = "", pen = "M";
    ink.forEach((up, k) => {
      if (Number.isFinite(up)) d += `${pen}${((k / (COLUMNS - 1)) * wide).toFixed(1)} ${((1 - up) * high).toFixed(1)}`;
      pen = Number.isFinite(up) ? "L" : "M";
    });
    path.setAttribute("d", d);
  }

  function draw(event) {
    const box = sheet.getBoundingClientRect();
    const across = Math.round(Math.max(0, Math.min(1, (event.clientX - box.left) / box.width)) * (COLUMNS - 1));
    const up = Math.max(0, Math.min(1, 1 - (event.clientY - box.top) / box.height));
    const from = last ?? { across, up }, steps = Math.max(1, Math.abs(across - from.across));
    for (let k = 0; k <= steps; k++) ink[Math.round(from.across + ((across - from.across) * k) / steps)] = from.up + ((up - from.up) * k) / steps;
    last = { across, up };
    show(box.width, box.height);
  }

  sheet.addEventListener("pointerdown", (event) => {
    if (!open || event.button !== 0) return;
    event.preventDefault();
    sheet.setPointerCapture(event.pointerId);
    last = null;
    draw(event);
  });
  sheet.addEventListener("pointermove", (event) => { if (open && last) draw(event); });
  for (const kind of ["pointerup", "pointercancel"]) sheet.addEventListener(kind, () => { if (last) { last = null; changed(); } });

  return {
    observable, place,
    get hidden() { return open; },
    get empty() { return !ink.some(Number.isFinite); },
    clear() { ink.fill(NaN); place(); changed(); },
    /** Show the curve and return one sentence about the distance of the sketch from it. */
    reveal() {
      open = false;
      sheet.classList.add("revealed");
      changed();
      const found = exact();
      if (!found || this.empty) return "";
      const { trace, x, y } = found;
      const points = trace.x.map((v, k) => (typeof trace.y[k] === "number" && Number.isFinite(x.d2p(v)) ? [x.d2p(v) / x._length, 1 - y.d2p(trace.y[k]) / y._length] : null));
      const far = distance(ink, points.map((p) => (p && Number.isFinite(p[1]) ? p : null)));
      if (!far) return "";
      const percent = (share) => `${number(100 * share, 2)} %`;
      const part = far.share < 0.9 ? ` Sketched: ${percent(far.share)} of the curve.` : "";
      return `On average ${percent(far.mean)} of the height away from the exact curve, at most ${percent(far.most)} (near ${number(x.p2d(far.where * x._length), 2)}).${part}`;
    },
    close() { sheet.remove(); },
  };
}

/** A sketch on other axes: every column is looked up where its value was before. */
function redrawn(ink, [typeX, rangeX, typeY, rangeY], x, y) {
  const out = new Float64Array(ink.length).fill(NaN);
  if (typeX !== x.type || typeY !== y.type) return out;
  const onto = (v, from, to) => (from[0] + v * (from[1] - from[0]) - to[0]) / (to[1] - to[0]);
  out.forEach((_, k) => {
    const column = Math.round(onto(k / (ink.length - 1), x.range, rangeX) * (ink.length - 1));
    if (Number.isFinite(ink[column])) out[k] = onto(ink[column], rangeY, y.range);
  });
  return out;
}

/** The figure with one observable of the current curve made invisible: its axes stay as they will be. */
export function veiled(figure, observable) {
  for (const trace of figure.traces) {
    if (trace.meta?.curve !== 0 || trace.meta.observable !== observable) continue;
    Object.assign(trace, { opacity: 0, hoverinfo: "skip", hovertemplate: undefined, text: undefined });
  }
  return figure;
}
