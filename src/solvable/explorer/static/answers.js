// Converts the server's answers to the format used by the figures.

/** Every dimension with its coordinate, including the swept controls. */
export function normal(answer) {
  const coordinates = { ...(answer.coordinates ?? {}) };
  for (const axis of [answer.x, answer.y]) if (axis?.field && axis.values) coordinates[axis.field] = axis.values;
  return { ...answer, coordinates, series: answer.series ?? [] };
}

const depth = (nested) => (Array.isArray(nested) ? nested.length : 0);

/** The theory if it was computed with the points (it takes minutes, or needs a random draw), and its x values. */
function theoryAt(points, view) {
  if (view.y || !points.some((p) => p.expected !== undefined)) return { values: null };
  const largest = Math.max(...points.map((p) => p.size)), last = points.filter((p) => p.size === largest).sort((a, b) => a.x - b.x);
  return view.x ? { values: last.map((p) => p.expected), x: last.map((p) => p.x) } : { values: last[0].expected };
}

/** The answer with a series for every shown observable that has points but no curve, so that they are drawn. */
export function completed(answer, points, view, description) {
  const coordinates = { ...(description.coordinates ?? {}), ...(answer?.coordinates ?? {}) }, series = [...(answer?.series ?? [])];
  const declared = Object.fromEntries(description.observables.map((o) => [o.name, o]));
  for (const name of view.observables) {
    const mine = points.filter((p) => p.observable === name);
    if (!mine.length || !declared[name] || series.some((s) => s.observable === name)) continue;
    const own = declared[name].dims;
    let inner = mine[0].mean;
    for (const dim of own) {
      if (!coordinates[dim] || coordinates[dim].length !== depth(inner)) coordinates[dim] = [...Array(depth(inner)).keys()];
      inner = inner?.[0];
    }
    if (view.x && !coordinates[view.x.field]) coordinates[view.x.field] = [...new Set(mine.map((p) => p.x))].sort((a, b) => a - b);
    const dims = [...(view.x ? [view.x.field] : []), ...own], theory = theoryAt(mine, view);
    series.push({ observable: name, status: theory.values === null ? "measured" : declared[name].status, dims, ...theory });
  }
  const dimensions = { ...(description.dimensions ?? {}), ...(answer?.dimensions ?? {}) };
  return { ...(answer ?? { lines: [], not_converged: 0 }), coordinates, series, dimensions };
}

/** Points of a stored study, which come as arrays, split into single points along the axis. */
export function unrolled(points, field, values) {
  return points.flatMap((p) => {
    if (!p.dims || p.dims[0] !== field) return [{ ...p, x: p.x ?? null }];
    return values.map((x, i) => ({ ...p, x, mean: p.mean?.[i] ?? null, error: p.error?.[i] ?? null, ...(p.expected && { expected: p.expected[i] }) }));
  });
}
