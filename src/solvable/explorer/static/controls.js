// The controls of a model, built from its declarations: sliders with number boxes, segmented choices, integers.

import { h, number, typed, unique, words } from "./dom.js";

const STEPS = 400;

/** Maps values to positions on a slider of STEPS steps and back; logarithmic if declared so. */
export function track(field) {
  const [low, high] = field.span ?? [field.low, field.high];
  const log = field.scale === "log" && low > 0;
  const [a, b] = log ? [Math.log(low), Math.log(high)] : [low, high];
  const digits = log && (b - a) / STEPS > 0.01 ? 3 : 4; // the fewest that distinguish neighbouring steps
  return {
    position: (value) => Math.max(0, Math.min(STEPS, Math.round((STEPS * ((log ? Math.log(Math.max(value, 1e-300)) : value) - a)) / (b - a)))),
    value: (position) => {
      const raw = a + ((b - a) * position) / STEPS, value = log ? Math.exp(raw) : raw;
      const rounded = Number(value.toPrecision(digits));
      return Math.max(low, Math.min(high, log ? rounded : Number(rounded.toFixed(6))));
    },
  };
}

export const name = (field) => [words(field.name), field.symbol_mathml ? h("span", { class: "symbol", html: field.symbol_mathml }) : null];

function explained(field) {
  return [h("span", { html: field.meaning_html }), field.kind === "control" ? ` Allowed: ${field.range}.` : ""];
}

/** A panel with one row per control and choice; `changed(name, value, final)` is called on every change. */
export function panel(description, changed) {
  const rows = {}, declared = Object.fromEntries(description.fields.map((f) => [f.name, f])), list = h("div", { class: "controls" });
  const numbers = description.fields.filter((f) => f.kind === "control"), choices = description.fields.filter((f) => f.kind === "choice");
  const arrays = description.fields.filter((f) => f.kind === "input" || f.kind === "data");
  if (numbers.length) list.append(h("h3", {}, "Controls"));
  for (const field of numbers) list.append((rows[field.name] = slider(field, changed)).element);
  if (choices.length) list.append(h("h3", {}, "Choices"));
  for (const field of choices) list.append((rows[field.name] = field.options ? alternatives(field, changed) : whole(field, changed)).element);
  const told = h("summary", {});
  if (arrays.length) {
    list.append(h("details", { class: "arrays" }, told,
      h("p", {}, "The page uses the model's defaults, unless its first view or a link names others; set arrays in Python."),
      h("dl", {}, arrays.map((f) => [h("dt", {}, name(f)), h("dd", {}, explained(f))]))));
  }
  return {
    element: list,
    update(view) {
      const given = arrays.filter((f) => Array.isArray(view.values[f.name])).map((f) => `${words(f.name)} ${JSON.stringify(view.values[f.name]).slice(0, 60)}`);
      told.textContent = given.length ? `Arrays: ${given.join(", ").replaceAll(",", ", ")}` : "Arrays (at their defaults)";
      for (const [field, row] of Object.entries(rows)) {
        row.show(view.values[field]);
        const axis = view.x?.field === field ? "on the horizontal axis" : view.y?.field === field ? "on the vertical axis" : "";
        row.swept(axis);
        row.asleep(sleeping(declared[field], view.values));
      }
    },
    refuse(field, sentence) {
      for (const [known, row] of Object.entries(rows)) row.refuse(known === field ? sentence : "");
      return field in rows;
    },
  };
}

/** The choices for which a field would matter, in words; empty if it matters now. */
export function sleeping(field, values) {
  const missing = Object.entries(field.matters_when ?? {}).filter(([name, allowed]) => !allowed.map(String).includes(String(values[name])));
  return chosen(missing);
}

const chosen = (conditions) => conditions.map(([name, allowed]) => `${words(name)} ${allowed.map((v) => words(String(v))).join(" or ")}`).join(" and ");

function frame(field, head, body) {
  const ids = { meaning: unique("meaning"), refusal: unique("refusal") };
  const refusal = h("p", { class: "refusal", id: ids.refusal, role: "alert", hidden: true });
  const axis = h("span", { class: "onaxis", hidden: true });
  // Always there, so that the rows below do not move when a choice wakes this one.
  const conditions = Object.entries(field.matters_when ?? {});
  const asleep = conditions.length ? h("p", { class: "wakes" }, `Matters only for ${chosen(conditions)}.`) : null;
  const element = h("div", { class: "control", "data-field": field.name }, h("div", { class: "head" }, head, axis), body,
    h("p", { class: "meaning", id: ids.meaning }, explained(field)), asleep, refusal);
  return {
    element, ids,
    asleep(until) {
      element.title = until ? `Changes nothing now; matters for ${until}.` : "";
      element.classList.toggle("asleep", Boolean(until));
      if (until) for (const input of element.querySelectorAll("input, select, button")) input.disabled = true;
    },
    swept(where) {
      axis.hidden = !where;
      axis.textContent = where;
      element.classList.toggle("swept", Boolean(where));
      for (const input of element.querySelectorAll("input, select, button")) input.disabled = Boolean(where);
    },
    refuse(sentence) {
      refusal.hidden = !sentence;
      if (refusal.textContent !== sentence) refusal.textContent = sentence;
      element.classList.toggle("refused", Boolean(sentence));
      for (const input of element.querySelectorAll("input, select")) {
        input.toggleAttribute("aria-invalid", Boolean(sentence));
        input.setAttribute("aria-describedby", sentence ? `${ids.refusal} ${ids.meaning}` : ids.meaning);
      }
    },
  };
}

function slider(field, changed) {
  const id = unique(field.name), rail = track(field);
  const box = h("input", { type: "text", inputmode: "decimal", class: "box", id, autocomplete: "off", spellcheck: "false" });
  const range = h("input", { type: "range", min: 0, max: STEPS, step: 1, "aria-labelledby": `${id}-label` });
  const row = frame(field, [h("label", { for: id, id: `${id}-label` }, name(field)), box], range);
  const mark = (value) => {
    range.setAttribute("aria-valuetext", number(value));
    range.style.setProperty("--filled", `${(100 * rail.position(value)) / STEPS}%`);
  };
  range.addEventListener("input", () => {
    const value = rail.value(Number(range.value));
    box.value = typed(value);
    mark(value);
    changed(field.name, value, false);
  });
  range.addEventListener("change", () => changed(field.name, rail.value(Number(range.value)), true));
  box.addEventListener("change", () => {
    const value = Number(box.value.trim().replace("−", "-"));
    if (box.value.trim() === "" || Number.isNaN(value)) {
      row.refuse(`${field.name} = ${JSON.stringify(box.value)} is not a number in ${field.range}: ${field.meaning}.`);
      return;
    }
    range.value = rail.position(value);
    mark(value);
    changed(field.name, value, true);
  });
  row.show = (value) => {
    if (document.activeElement !== box) box.value = typed(value);
    if (document.activeElement !== range || rail.value(Number(range.value)) !== value) range.value = rail.position(value);
    mark(value);
  };
  row.refuse("");
  return row;
}

function alternatives(field, changed) {
  const id = unique(field.name), short = field.options.length <= 4 && field.options.join("").length <= 30;
  let row, show;
  if (short) {
    const group = unique(`${field.name}-of`);
    const inputs = field.options.map((option) => h("input", { type: "radio", name: group, value: option, onchange: () => changed(field.name, option, true) }));
    row = frame(field, h("span", { class: "label", id }, name(field)),
      h("div", { class: "segments", role: "radiogroup", "aria-labelledby": id }, inputs.map((input) => h("label", {}, input, h("span", {}, words(input.value))))));
    show = (value) => inputs.forEach((input) => { input.checked = input.value === value; });
  } else {
    const select = h("select", { id, onchange: () => changed(field.name, select.value, true) }, field.options.map((o) => h("option", { value: o }, words(o))));
    row = frame(field, h("label", { for: id }, name(field)), select);
    show = (value) => { select.value = value; };
  }
  row.show = show;
  row.refuse("");
  return row;
}

function whole(field, changed) {
  const id = unique(field.name);
  const box = h("input", { type: "number", id, class: "box", step: 1, min: field.low, max: field.high, onchange: () => changed(field.name, Number(box.value), true) });
  const row = frame(field, [h("label", { for: id }, name(field)), box], null);
  row.show = (value) => { if (document.activeElement !== box) box.value = String(value); };
  row.refuse("");
  return row;
}
