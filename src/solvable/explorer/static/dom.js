// Helpers for elements, words and numbers, used by every other module.

/** An element with attributes, listeners (`onclick`) and children; `html` must only be set to content of our server. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "html") element.innerHTML = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "disabled") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(3).filter((c) => c !== null && c !== undefined && c !== false));
  return element;
}

let counter = 0;

/** A unique element id. */
export const unique = (stem) => `${stem}-${++counter}`;

/** `test_error` → `test error`. */
export const words = (name) => String(name).replaceAll("_", " ");

/** A number for reading: four digits, no trailing zeros, a true minus sign. */
export function number(value, digits = 4) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (typeof value !== "number") return String(value);
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  const rounded = Number(value.toPrecision(digits));
  const text = size !== 0 && (size < 1e-4 || size >= 1e6) ? rounded.toExponential().replace("e+", "e") : String(rounded);
  return text.replace(/^-/, "−");
}

/** A number for an input box: plain ASCII, up to six digits. */
export const typed = (value) => (typeof value === "number" ? String(Number(value.toPrecision(6))) : String(value));

const ENTITIES = { "&": "&amp;", "<": "&lt;", ">": "&gt;", "%{": "%&#123;" };

/** Text for a plot label: Plotly reads tags (also links) and placeholders in it, which names and values must not become. */
export const plain = (text) => String(text).replace(/[&<>]|%\{/g, (found) => ENTITIES[found]);

const ACCENTS = { "^": "\u0302", "~": "\u0303", "¯": "\u0304", "˙": "\u0307" };

/** A symbol for plot labels, which do not support MathML: its letters with <sub> and <sup>. */
export function plainSymbol(mathml) {
  if (!mathml) return "";
  const holder = document.createElement("template");
  holder.innerHTML = mathml;
  const caption = (node) => {
    if (node.nodeType === Node.TEXT_NODE) return plain(node.textContent.trim());
    const parts = [...node.childNodes].filter((n) => n.nodeType !== Node.TEXT_NODE || n.textContent.trim());
    const name = node.localName;
    if (name === "annotation") return "";
    if (name === "mspace") return "\u2009";
    const accent = name === "mover" && ACCENTS[parts[1].textContent.trim()];
    if (accent) return caption(parts[0]).replace(/(?=<\/i>$|$)/, accent);
    if (name === "msub" || name === "munder") return `${caption(parts[0])}<sub>${caption(parts[1])}</sub>`;
    if (name === "msup" || name === "mover") return `${caption(parts[0])}<sup>${caption(parts[1])}</sup>`;
    if (name === "msubsup") return `${caption(parts[0])}<sub>${caption(parts[1])}</sub><sup>${caption(parts[2])}</sup>`;
    if (name === "mfrac") return `${caption(parts[0])}/${caption(parts[1])}`;
    if (name === "mi" && node.textContent.trim().length === 1) return `<i>${plain(node.textContent.trim())}</i>`;
    return parts.map(caption).join("");
  };
  return caption(holder.content).trim();
}

/** Debounce: run the action once no new call has come for a while. */
export function settled(milliseconds, action) {
  let timer = 0;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => action(...given), milliseconds);
  };
}

const speak = settled(700, (text) => { document.getElementById("live").textContent = text; });

/** Announce text to a screen reader, once changes have stopped. */
export const announce = (text) => speak(text);

/** Copy text to the clipboard; returns whether that worked. */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const box = h("textarea", { class: "hidden" });
    box.value = text;
    document.body.append(box);
    box.select();
    const done = document.execCommand("copy");
    box.remove();
    return done;
  }
}
