// The swept controls: the horizontal axis with its range and scale, and a second control for a phase diagram.

import { h, typed, unique, words } from "./dom.js";
import { along } from "./figure.js";
import { existing } from "./state.js";

const CURVE = 60, PLANE = 40;

/** A sweep over a control's typical range, on its declared scale. */
export function sweepOf(field, points = CURVE) {
  const [from, to] = field.span ?? [field.low, field.high];
  return { field: field.name, from, to, points, scale: field.scale === "log" && from > 0 ? "log" : "linear" };
}

/** The bar under the plot; `changed(patch)` gets the new x and y. */
export function axisBar(description, changed) {
  const fields = Object.fromEntries(description.fields.filter((f) => f.kind === "control").map((f) => [f.name, f]));
  let view = null;
  const first = sweepEditor("Along", "Horizontal axis", "x"), second = sweepEditor("and", "Vertical axis", "y");
  const element = h("div", { class: "axes" }, first.element, second.element);

  function sweepEditor(word, title, which) {
    const ids = Object.fromEntries(["field", "from", "to", "points"].map((k) => [k, unique(`${which}-${k}`)]));
    const select = h("select", { id: ids.field, "aria-label": title });
    const boxes = Object.fromEntries(["from", "to", "points"].map((k) => [k, h("input", { type: "text", inputmode: "decimal", id: ids[k], class: "box", autocomplete: "off" })]));
    const log = h("input", { type: "checkbox" });
    const refusal = h("p", { class: "refusal", role: "alert", hidden: true });
    const range = h("div", { class: "range" },
      ["from", "to", "points"].map((k) => h("span", {}, h("label", { for: ids[k] }, k, h("span", { class: "hidden" }, ` of the ${title.toLowerCase()}`)), boxes[k])),
      h("label", { class: "tick" }, log, "logarithmic"));
    const element = h("div", { class: "sweep", "data-axis": which }, h("div", { class: "which" }, h("label", { for: ids.field }, word), select), range, refusal);
    select.addEventListener("change", () => choose(which, select.value));
    for (const k of ["from", "to", "points"]) {
      boxes[k].addEventListener("change", () => {
        const value = Number(boxes[k].value);
        if (boxes[k].value.trim() === "" || Number.isNaN(value)) return refuse(`${k} = ${JSON.stringify(boxes[k].value)} is not a number.`);
        const next = { ...view[which], [k]: value };
        if (next.scale === "log" && next.from <= 0) next.scale = "linear";
        changed({ [which]: next });
      });
    }
    log.addEventListener("change", () => {
      if (log.checked && view[which].from <= 0) {
        log.checked = false;
        return refuse("A logarithmic axis must start above 0.");
      }
      changed({ [which]: { ...view[which], scale: log.checked ? "log" : "linear" } });
    });
    function refuse(sentence) {
      refusal.hidden = !sentence;
      refusal.textContent = sentence;
      for (const box of Object.values(boxes)) box.toggleAttribute("aria-invalid", Boolean(sentence));
    }
    return {
      element, refuse,
      show(sweep, options) {
        select.replaceChildren(...options.map(([value, text]) => h("option", { value }, text)));
        select.value = sweep?.field ?? "";
        range.hidden = !sweep;
        if (!sweep) return;
        for (const k of ["from", "to", "points"]) if (document.activeElement !== boxes[k]) boxes[k].value = typed(sweep[k]);
        log.checked = sweep.scale === "log";
      },
    };
  }

  function choose(which, name) {
    const sweep = name ? sweepOf(fields[name], which === "y" || view.y ? PLANE : CURVE) : null;
    if (which === "x") {
      const y = view.y && sweep && view.y.field !== name ? view.y : null;
      changed({ x: sweep ? { ...sweep, points: y ? PLANE : CURVE } : null, y }, true);
    } else {
      const x = view.x && { ...view.x, points: sweep ? Math.min(view.x.points, PLANE) : CURVE };
      changed({ x, y: sweep }, true);
    }
  }

  return {
    element,
    update(now) {
      view = now;
      const known = existing(description, view.values), axes = (some) => [...new Set(some.map((o) => along(o, description, {})).filter(Boolean))];
      const shown = axes(known.filter((o) => view.observables.includes(o.name))), own = shown.length ? shown : axes(known); // as drawn
      const free = own.length || !view.x || !description.has_theory ? [["", own.length ? `${own.map(words).join(", ")} (no sweep)` : "no sweep"]] : [];
      const controls = Object.keys(fields).map((n) => [n, words(n)]);
      first.show(view.x, [...controls, ...free]);
      first.refuse("");
      second.refuse("");
      second.element.hidden = !view.x || controls.length < 2 || !description.has_theory;
      second.show(view.y, [["", view.y ? "none (curves)" : "… a second control (phase diagram)"], ...controls.filter(([n]) => n !== view.x?.field)]);
    },
    /** Show a refusal about a swept field next to its axis; returns whether the field is swept. */
    refuse(field, sentence) {
      const editor = view?.x?.field === field ? first : view?.y?.field === field ? second : field === "x" ? first : field === "y" ? second : null;
      editor?.refuse(sentence);
      return Boolean(editor);
    },
  };
}
