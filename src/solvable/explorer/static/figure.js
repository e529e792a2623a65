// Composes figures from the server's answers: panels, lines, points and heat maps, as plain objects.

import { number, plain, plainSymbol, words } from "./dom.js";

// Okabe and Ito's palette, as in the printed figures; on a dark background its lighter colours come first.
const LIGHT = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"];
const DARK = ["#56B4E9", "#E69F00", "#2BC59A", "#E39CC4", "#F0E442", "#FF8A3D", "#FFFFFF"];
export const MARKERS = ["circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "x"];
export const DASHES = ["solid", "dash", "dot", "dashdot"];

export const palette = (dark) => (dark ? DARK : LIGHT);

const AXES = ["time", "mode", "site"]; // kinds of dimensions along which curves are drawn

/** The two dimensions over which a series can be drawn as a map (two times, two sites), or null. */
export function planeOf(series, answer) {
  const flat = series.dims.filter((d) => [...AXES, "pair"].includes(answer.dimensions?.[d]?.kind));
  return flat.length >= 2 && series.dims.length === 2 ? flat : null;
}

/** A few indices of a long dimension, including the last. */
function some(length, most) {
  if (length <= most) return [...Array(length).keys()];
  return [...new Set(Array.from({ length: most }, (_, k) => Math.round((k * (length - 1)) / (most - 1))))];
}

/** A place on an axis: words of a category are labels too. */
const tick = (value) => (typeof value === "string" ? plain(value) : value);

const at = (nested, indices) => indices.reduce((inner, i) => (inner === null || inner === undefined ? null : inner[i]), nested);

/** The dimension along which a series is drawn: the swept control, else the one that its model declares as an axis, else
 * its first dimension with numeric coordinates. */
export function along(series, answer, view) {
  if (view.x && series.dims.includes(view.x.field)) return view.x.field;
  const declared = series.dims.find((d) => AXES.includes(answer.dimensions?.[d]?.kind));
  if (declared) return declared;
  const numeric = (d) => answer.coordinates[d]?.every((v) => typeof v === "number");
  return series.dims.find(numeric) ?? series.dims[0] ?? null;
}

/** Every combination of indices of the other dimensions, each with its caption: one line each. */
function combinations(series, answer, axis) {
  const others = series.dims.filter((d) => d !== axis);
  let found = [{ picked: {}, caption: [] }];
  for (const dim of others) {
    const values = answer.coordinates[dim] ?? [];
    const count = values.length || lengthAlong(series, dim);
    const kept = some(count, count > 8 ? 5 : 8);
    const plain = values.every((v, k) => v === k);
    const shown = (i) => (plain ? i + 1 : number(values[i], 3));
    found = found.flatMap((f) => kept.map((i) => ({
      picked: { ...f.picked, [dim]: i },
      caption: [...f.caption, `${words(dim)} ${shown(i)}`],
    })));
  }
  return found.slice(0, 24);
}

function lengthAlong(series, dim) {
  let inner = series.values;
  for (let k = 0; k < series.dims.indexOf(dim); k++) inner = inner?.[0];
  return inner?.length ?? 0;
}

/** The lines of one series: x, y and the caption of each. */
export function linesOf(series, answer, view) {
  const axis = along(series, answer, view);
  if (axis === null) return [{ axis, x: [0], y: [series.values], caption: [], picked: {} }];
  const x = (axis === view.x?.field ? series.x : null) ?? answer.coordinates[axis] ?? [...Array(lengthAlong(series, axis)).keys()];
  return combinations(series, answer, axis).map(({ picked, caption }) => ({
    axis, x, picked, caption,
    y: x.map((_, i) => at(series.values, series.dims.map((d) => (d === axis ? i : picked[d])))),
  }));
}

/** The simulated points of one line and size, as mean and error at each x. */
export function pointsOf(points, series, answer, line, view) {
  const own = series.dims.filter((d) => d !== view.x?.field);
  const rows = [];
  for (const p of points) {
    if (view.x && line.axis === view.x.field) {
      const indices = own.map((d) => line.picked[d]);
      rows.push({ x: p.x, mean: at(p.mean, indices), error: at(p.error, indices), seeds: p.seeds, theory: at(p.expected, indices) });
    } else if (line.axis !== null && Array.isArray(p.mean)) {
      const every = Math.max(1, Math.floor(line.x.length / 25));
      line.x.forEach((x, i) => {
        if (i % every && i !== line.x.length - 1) return;
        const indices = own.map((d) => (d === line.axis ? i : line.picked[d]));
        rows.push({ x, mean: at(p.mean, indices), error: at(p.error, indices), seeds: p.seeds, theory: at(p.expected, indices) });
      });
    } else {
      rows.push({ x: 0, mean: p.mean, error: p.error, seeds: p.seeds });
    }
  }
  return rows.filter((r) => r.mean !== null && r.mean !== undefined).sort((a, b) => a.x - b.x);
}

const APART = 0.01; // of the height of the curve and its points: what is closer cannot be told apart

/** The points whose own theory, that of their size, with which they are compared, differs visibly from the curve. */
export function apart(rows, line, logarithmic) {
  const scale = (v) => (v === null || v === undefined ? NaN : logarithmic ? Math.log(v) : v);
  const seen = [...line.y, ...rows.map((r) => r.mean)].map(scale).filter(Number.isFinite), high = Math.max(...seen) - Math.min(...seen);
  return rows.filter((r) => {
    const k = line.x.findIndex((x) => x >= r.x);
    if (k < 0) return false;
    const [a, b] = [Math.max(k - 1, 0), k].map((i) => ({ x: line.x[i], y: scale(line.y[i]) }));
    const here = b.x === r.x || a.x === b.x ? b.y : a.y + ((b.y - a.y) * (r.x - a.x)) / (b.x - a.x);
    return Math.abs(scale(r.theory) - here) > APART * high;
  });
}

/** Ticks of a logarithmic axis: 0.2, 0.5, 1, 2, 5 on short ranges and powers of ten on long ones. */
function logTicks(values) {
  const seen = values.filter((v) => typeof v === "number" && v > 0), low = Math.min(...seen), high = Math.max(...seen);
  if (high / low >= 1000) {
    const every = Math.ceil(Math.log10(high / low) / 8), first = Math.ceil(Math.log10(low) - 1e-9);
    const powers = Array.from({ length: Math.floor(Math.log10(high) + 1e-9) - first + 1 }, (_, k) => first + k).filter((p) => (p - first) % every === 0);
    const text = (p) => (Math.abs(p) <= 1 ? number(10 ** p) : `10<sup>${String(p).replace("-", "−")}</sup>`);
    return { tickmode: "array", tickvals: powers.map((p) => 10 ** p), ticktext: powers.map(text), minor: { dtick: "D1", ticks: "outside", ticklen: 3, tickcolor: "#8d929a" } };
  }
  const digits = high / low < 4 ? [1, 1.5, 2, 3, 4, 5, 6, 8] : [1, 2, 5], tickvals = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) tickvals.push(...digits.map((d) => Number((d * 10 ** power).toPrecision(3))));
  return { tickmode: "array", tickvals, ticktext: tickvals.map((v) => number(v, 3)) };
}

/** Columns, rows and height of a figure with this number of panels. */
export function extent(panels, width, look) {
  const columns = panels > 1 && width >= 620 ? 2 : 1, rows = Math.max(1, Math.ceil(panels / columns));
  return { columns, rows, tall: Math.round(rows === 1 ? look.height : Math.max(look.height, rows * (look.low ? 200 : 270 * look.scale))) };
}

/**
 * The whole figure. `curves` are the current one and the pinned ones: {name, colour, answer, points, faded};
 * `declarations` maps fields and observables to their declarations; a `preview` has few points, and a smooth line through them.
 */
export function compose({ view, curves, declarations, look, width, logarithmic, preview, map }) {
  const first = curves[0]?.answer, whole = first?.series[0];
  declarations = { ...declarations, fields: { ...(first?.dimensions ?? {}), ...declarations.fields } };
  if (view.y && whole?.dims.length === 2) return heatMap({ scales: [view.x.scale, view.y.scale], answer: first, declarations, look, width });
  if (map && !view.x && whole?.values && planeOf(whole, first)) return heatMap({ scales: whole.dims.map((d) => first.dimensions[d].scale), answer: first, declarations, look, width });
  const names = view.observables.filter((n) => curves.some((c) => has(c, n)));
  const { columns, rows, tall } = extent(names.length, width, look);
  const traces = [], legend = [], layout = base(look);
  const single = curves.length === 1;
  const colours = palette(look.dark);
  const gapX = columns > 1 ? (70 * look.scale) / width : 0;
  const gapY = rows > 1 ? (62 * look.scale) / tall : 0;
  
  names.forEach((name, k) => {
    const suffix = k === 0 ? "" : String(k + 1), column = k % columns, row = Math.floor(k / columns);
    const wide = (1 - gapX * (columns - 1)) / columns, high = (1 - gapY * (rows - 1)) / rows;
    const domainX = [column * (wide + gapX), column * (wide + gapX) + wide];
    const top = 1 - row * (high + gapY);
    let axisName = null, everyX = [], everyY = [], markers = false;

    curves.forEach((curve, c) => {
      for (const series of curve.answer?.series.filter((s) => s.observable === name) ?? []) {
        linesOf(series, curve.answer, view).forEach((line, l) => {
          const colour = colours[(single ? l : curve.colour) % colours.length];
          const dash = DASHES[(series.branch !== undefined && series.branch !== null ? series.branch : single ? Math.floor(l / colours.length) : l) % DASHES.length];
          const caption = [curve.name, ...line.caption, series.size ? `theory at size ${series.size}` : "", series.branch !== undefined && series.branch !== null ? `branch ${series.branch + 1}` : ""].filter(Boolean).join(", ");
          axisName = line.axis;
          everyX = everyX.concat(line.x);
          everyY = everyY.concat(line.y);
          // What was computed at some points only is drawn at these points.
          const few = (line.x.length <= 12 || (series.stored && line.axis === view.x?.field)) && !preview;
          markers ||= few;
          if (series.values !== null && line.y.some((v) => v !== null)) {
            traces.push({
              meta: { curve: c, observable: name }, type: "scatter", mode: line.axis === null || few ? "lines+markers" : "lines", x: line.axis === null ? [c] : line.x.map(tick), y: line.y,
              xaxis: `x${suffix}`, yaxis: `y${suffix}`, name: plain(caption || "theory"), showlegend: false, connectgaps: false,
              line: { color: colour, width: (c === 0 ? 2.6 : 2) * look.scale, dash, simplify: false, shape: preview ? "spline" : "linear" },
              marker: { color: colour, size: 8 * look.scale, symbol: "circle-open", line: { width: 2 } },
              hovertemplate: `%{y:.4g}<extra>${plain(caption || "theory")}</extra>`, opacity: series.stable === false ? 0.55 : 1,
            });
            entry(legend, { key: `line ${caption || name}`, kind: "line", colour, dash, caption, curve: c, plain: !caption, observable: name });
          } else if (caption) entry(legend, { key: `points ${caption}`, kind: "marker", colour, symbol: "circle", caption, first: true });
          drawPoints({ traces, legend, curve, c, series, line, colour, suffix, view, look, caption, everyY, logarithmic });
        });
      }
    });

    const scale = view.x && axisName === view.x.field ? view.x.scale : first?.dimensions?.[axisName]?.scale ?? "linear";
    const own = axisName !== null && !everyX.every((v) => typeof v === "number");
    layout[`xaxis${suffix}`] = {
      ...axis(look), domain: domainX, anchor: `y${suffix}`, type: own ? "category" : scale === "log" ? "log" : "linear",
      title: { text: k + columns >= names.length ? axisTitle(axisName, declarations) : "", standoff: 10, font: { size: 15 * look.scale } },
      ...(scale === "log" && !own ? logTicks(everyX) : {}), showticklabels: axisName !== null, ...(axisName === null ? { showgrid: false, ticks: "", range: [-0.6, curves.length - 0.4] } : {}),
      ...(markers && !own && scale !== "log" && everyX.every(Number.isInteger) && axisName !== null ? { dtick: Math.max(1, Math.round((Math.max(...everyX) - Math.min(...everyX)) / 8)) } : {}),
    };
    const numbers = everyY.filter((v) => v !== null && v !== undefined);
    const log = logarithmic && numbers.some((v) => v > 0);
    layout[`yaxis${suffix}`] = {
      ...axis(look), domain: [top - high, top], anchor: `x${suffix}`, type: log ? "log" : "linear", automargin: true,
      title: { text: names.length > 1 ? "" : labelled(name, declarations.observables[name]), standoff: 12, font: { size: 15 * look.scale } },
      ...(log ? logTicks(numbers) : { rangemode: numbers.every((v) => v >= 0) ? "tozero" : "normal" }),
    };
    if (names.length > 1) {
      layout.annotations.push({
        text: labelled(name, declarations.observables[name]), xref: `x${suffix} domain`, yref: `y${suffix} domain`, x: 0, y: 1, xanchor: "left", yanchor: "bottom",
        showarrow: false, font: { size: 14 * look.scale, color: look.ink },
      });
    }
  });
  if (names.length > 1) layout.margin.l = 42 * look.scale;
  layout.height = tall;
  legend.sort((a, b) => Boolean(b.first) - Boolean(a.first));
  traces.sort((a, b) => (a.meta.curve === 0) - (b.meta.curve === 0)); // the current curve is drawn last, above the pinned ones
  return { traces, layout, legend, panels: names };
}

const has = (curve, name) => curve.answer?.series.some((s) => s.observable === name);

function drawPoints({ traces, legend, curve, c, series, line, colour, suffix, view, look, caption, everyY, logarithmic }) {
  const mine = (curve.points ?? []).filter((p) => p.observable === series.observable && !(series.branch > 0));
  const sizes = [...new Set(mine.map((p) => p.size))].sort((a, b) => a - b);
  sizes.forEach((size, s) => {
    const aside = c + 0.14 * (s - (sizes.length - 1) / 2); // without an axis, sizes are drawn side by side
    const rows = pointsOf(mine.filter((p) => p.size === size), series, curve.answer, line, view);
    if (!rows.length) return;
    rows.forEach((r) => everyY.push(r.mean));
    const dimmed = mine.some((p) => p.size === size && p.dim);
    const known = !curve.faded && !dimmed && typeof line.x[0] === "number" ? apart(rows, line, logarithmic) : [];
    if (known.length) {
      known.forEach((r) => everyY.push(r.theory));
      traces.push({
        meta: { curve: c, observable: series.observable, size }, type: "scatter", mode: "markers", x: known.map((r) => r.x), y: known.map((r) => r.theory), xaxis: `x${suffix}`, yaxis: `y${suffix}`,
        name: `theory at size ${size}`, showlegend: false, marker: { symbol: "line-ew-open", size: 16 * look.scale, color: colour, line: { width: 2 * look.scale, color: colour } }, hovertemplate: `%{y:.4g}<extra>theory at size ${size}</extra>`,
      });
      entry(legend, { key: "theory at sizes", kind: "marker", symbol: "dash", colour, caption: "theory at the size of the points" });
    }
    const strength = curve.faded ? 0.25 : dimmed ? 0.1 : 0.45 + (0.55 * (s + 1)) / sizes.length;
    const symbol = MARKERS[s % MARKERS.length];
    traces.push({
      meta: { curve: c, observable: series.observable }, type: "scatter", mode: line.axis === null ? "markers+text" : "markers", x: rows.map((r) => (line.axis === null ? aside : tick(r.x))), y: rows.map((r) => r.mean),
      text: line.axis === null ? rows.map((r) => `  ${number(r.mean)} ± ${number(r.error, 2)}`) : undefined, textposition: "middle right", cliponaxis: false,
      xaxis: `x${suffix}`, yaxis: `y${suffix}`, name: `size ${size}`, showlegend: false, opacity: strength,
      error_y: { type: "data", array: rows.map((r) => r.error ?? 0), thickness: 1.4 * look.scale, width: 0, color: curve.faded ? look.quiet : colour },
      marker: { color: curve.faded ? look.quiet : colour, size: 7.5 * look.scale, symbol, line: { width: 1, color: look.paper } },
      customdata: rows.map((r) => [number(r.error, 2), r.seeds]),
      hovertemplate: `%{y:.4g} ± %{customdata[0]}<extra>${caption ? `${plain(caption)}, ` : ""}size ${size}, %{customdata[1]} seeds</extra>`,
    });
    entry(legend, { key: `size ${size}${curve.faded ? " faded" : ""}`, kind: "marker", colour: curve.faded ? look.quiet : look.ink, symbol, caption: `simulated, size ${size}${curve.faded ? " (at other values)" : ""}` });
  });
}

function entry(legend, added) {
  if (!legend.some((e) => e.key === added.key)) legend.push(added);
}

function heatMap({ scales, answer, declarations, look, width }) {
  const series = answer.series[0], [x, y] = series.dims, layout = base(look);
  const xs = answer.coordinates[x], ys = answer.coordinates[y];
  const z = ys.map((_, j) => xs.map((_, i) => series.values[i]?.[j] ?? null));
  const traces = [{
    type: "heatmap", x: xs, y: ys, z, colorscale: "Viridis", hoverongaps: false,
    colorbar: { thickness: 14, outlinewidth: 0, len: 1, tickfont: { size: 13 * look.scale }, title: { font: { size: 14 * look.scale }, text: labelled(series.observable, declarations.observables[series.observable]), side: width < 520 ? "top" : "right" } },
    hovertemplate: `${plain(words(x))} %{x:.4g}, ${plain(words(y))} %{y:.4g}<br>${plain(words(series.observable))} %{z:.4g}<extra></extra>`,
  }];
  const legend = [];
  const known = answer.lines ?? [], drawn = (line) => ({ type: "scatter", mode: "lines", x: line.x, y: line.y, showlegend: false });
  for (const line of known) traces.push({ ...drawn(line), line: { color: "#fff", width: 4.5 }, hoverinfo: "skip" });
  known.forEach((line, k) => {
    const dash = DASHES[k % DASHES.length], common = drawn(line);
    traces.push({ ...common, line: { color: "#111", width: 2, dash }, hovertemplate: `${plain(words(line.name))}<extra></extra>` });
    legend.push({ key: `line ${line.name}`, kind: "line", colour: look.ink, dash, caption: `transition: ${words(line.name)}` });
  });
  const ranged = (scale, values) => {
    const log = scale === "log", edge = (v) => (log ? Math.log10(v) : v), start = values.find((v) => !log || v > 0);
    return { type: log ? "log" : "linear", range: [edge(start), edge(values.at(-1))], ...(log ? logTicks(values) : {}) };
  };
  layout.xaxis = { ...axis(look), ...ranged(scales[0], xs), title: { text: axisTitle(x, declarations), standoff: 10, font: { size: 15 * look.scale } }, showgrid: false, ticks: "outside" };
  layout.yaxis = { ...axis(look), ...ranged(scales[1], ys), title: { text: axisTitle(y, declarations), standoff: 12, font: { size: 15 * look.scale } }, showgrid: false, ticks: "outside", automargin: true };
  layout.plot_bgcolor = look.gap;
  layout.hovermode = "closest";
  layout.height = look.height;
  return { traces, layout, legend, panels: [series.observable] };
}

export function labelled(name, caption) {
  const symbol = plainSymbol(caption?.symbol_mathml);
  return symbol ? `${plain(words(name))}  ${symbol}` : plain(words(name));
}

function axisTitle(name, declarations) {
  return name === null ? "" : labelled(name, declarations.fields[name]);
}

function axis(look) {
  return {
    color: look.ink, gridcolor: look.grid, linecolor: look.axis, zerolinecolor: look.grid, showline: true, ticks: "outside", tickcolor: look.axis,
    ticklen: 5, zeroline: false, tickfont: { size: 13 * look.scale }, hoverformat: ".4g", fixedrange: look.touch,
  };
}

function base(look) {
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false, annotations: [], hovermode: "x unified",
    font: { family: look.family, size: 15 * look.scale, color: look.ink }, margin: { l: 64 * look.scale, r: 20 * look.scale, t: 26 * look.scale, b: 54 * look.scale },
    hoverlabel: { bgcolor: look.paper, bordercolor: look.grid, font: { family: look.family, size: 13 * look.scale, color: look.ink } }, dragmode: look.touch ? false : "zoom",
  };
}
