// The state of a view, and its form as the query string of a link.

const WORDS = ["model", "x", "y", "show", "branches", "sizes", "seeds", "simulated", "study", "at", "pin", "axis", "type", "tour", "token", "step", "along", "lines", "by", "log", "lecture"];

const queryName = (name) => (WORDS.includes(name) ? `field.${name}` : name);
const exact = (value) => (typeof value === "number" ? String(Number(value.toPrecision(12))) : String(value));
const swept = (s) => [s.field, exact(s.from), exact(s.to), s.points, s.scale].join(":");

function unswept(text) {
  const [field, from, to, points, scale] = text.split(":");
  return { field, from: Number(from), to: Number(to), points: Number(points), scale: scale ?? "linear" };
}

/** The declared controls and choices, which a view may set. */
export const settable = (description) => description.fields.filter((f) => f.kind === "control" || f.kind === "choice");

/** A value from a link, converted to the declared type. */
function parsed(field, text) {
  return field.kind === "choice" && field.options ? text : Number(text);
}

/** Every control and choice at its default, or at its value in the default view. */
export function defaults(description) {
  const values = Object.fromEntries(settable(description).map((f) => [f.name, f.default]));
  return { ...values, ...(description.default_view?.values ?? {}) };
}

/** The view with which a model is opened. */
export function firstView(description) {
  const given = description.default_view ?? {};
  return {
    model: description.id,
    x: given.x ?? null,
    y: given.y ?? null,
    observables: [...(given.observables ?? [])],
    branches: Boolean(given.branches),
    sizes: [...(given.sizes ?? description.typical_sizes)],
    seeds: given.seeds ?? 8,
    simulated: given.simulated ?? 10,
    values: defaults(description),
  };
}

function changed(values, base) {
  return Object.entries(values).filter(([name, value]) => value !== base[name]);
}

/** The query string that restores a view, its pinned curves and its scale. */
export function toQuery(view, description, { pins = [], logarithmic = false, tour = null, step = 0, lecture = null } = {}) {
  const first = firstView(description), query = new URLSearchParams();
  query.set("model", view.model);
  for (const [name, value] of changed(view.values, first.values)) query.set(queryName(name), exact(value));
  query.set("x", view.x ? swept(view.x) : "none");
  if (view.y) query.set("y", swept(view.y));
  query.set("show", view.observables.join(","));
  if (view.branches) query.set("branches", "1");
  if (String(view.sizes) !== String(first.sizes)) query.set("sizes", view.sizes.join(","));
  if (view.seeds !== first.seeds) query.set("seeds", view.seeds);
  if (view.simulated !== first.simulated) query.set("simulated", view.simulated);
  for (const pin of pins) query.append("pin", changed(pin.values, first.values).map(([n, v]) => `${n}:${exact(v)}`).join(",") || "defaults");
  if (logarithmic) query.set("axis", "log");
  if (tour) query.set("tour", tour);
  if (lecture) query.set("lecture", lecture);
  if (tour || lecture) query.set("step", step);
  // Colons and commas are allowed in a query string, and easier to read unescaped.
  return query.toString().replaceAll("%3A", ":").replaceAll("%2C", ",");
}

/** A view from a query string; anything it does not mention is as in the model's first view. */
export function fromQuery(text, description) {
  const query = new URLSearchParams(text), view = firstView(description), base = { ...view.values };
  const fields = Object.fromEntries(settable(description).map((f) => [f.name, f]));
  for (const [name, field] of Object.entries(fields)) {
    const given = query.get(queryName(name));
    if (given !== null) view.values[name] = parsed(field, given);
  }
  if (query.has("x")) view.x = query.get("x") === "none" ? null : unswept(query.get("x"));
  else if (fields[query.get("along")]?.span) {
    const { name, span: [from, to], scale } = fields[query.get("along")];
    view.x = { field: name, from, to, points: view.x?.points ?? 60, scale: scale === "log" && from > 0 ? "log" : "linear" };
  }
  view.y = query.has("y") ? unswept(query.get("y")) : query.has("x") ? null : view.y;
  if (query.get("show")) view.observables = query.get("show").split(",");
  if (query.has("branches")) view.branches = query.get("branches") === "1";
  if (query.get("sizes")) view.sizes = query.get("sizes").split(",").map(Number);
  if (query.get("seeds")) view.seeds = Number(query.get("seeds"));
  if (query.get("simulated")) view.simulated = Number(query.get("simulated"));
  const pins = query.getAll("pin").map((pin) => {
    const values = { ...base };
    for (const part of pin === "defaults" ? [] : pin.split(",")) {
      const [name, value] = part.split(":");
      if (fields[name] && value !== undefined) values[name] = parsed(fields[name], value);
    }
    return { values };
  });
  return { view, pins, logarithmic: query.get("axis") === "log" || (query.get("log") ?? "").includes("y"), tour: query.get("tour"), step: Number(query.get("step") ?? 0), lecture: query.get("lecture") };
}

/** The view as the server reads it. */
export function forServer(view) {
  const { simulated, ...rest } = view;
  return view.x && !view.y && simulated ? { ...rest, simulated } : rest;
}

/** The observables that exist for these choices. */
export function existing(description, values) {
  return description.observables.filter((o) => Object.entries(conditions(o)).every(([name, allowed]) =>
    allowed.map(String).includes(String(values[name]))));
}

function conditions(observable) {
  return observable.exists_when ?? Object.fromEntries((observable.conditions ?? []).map((c) => [c.field, c.in]));
}

/** The difference of one set of values from others, in words: `penalty 0.01, loss hinge`. */
export function difference(values, others, without, label) {
  const names = Object.keys(values).filter((n) => n !== without && others.some((o) => o[n] !== values[n]));
  return names.map((n) => `${label(n)} ${typeof values[n] === "number" ? Number(values[n].toPrecision(4)) : values[n]}`).join(", ");
}
