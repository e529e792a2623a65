// Export: the view as Python, as a shell command, as a file and as a link.

import * as api from "./api.js";
import { announce, copy, h, settled } from "./dom.js";
import { forServer } from "./state.js";

const FORMATS = [["png", "PNG"], ["svg", "SVG"], ["pdf", "PDF"], ["csv", "CSV"], ["nc", "netCDF"], ["html", "Snapshot (one HTML page)"]];

/** The panel; `current()` gives {view, job, link, also}: `also` holds the pins and the scale. Program and command are fetched when the panel is open. */
export function takeaway({ current, reproducible = true }) {
  const python = snippet("Python"), shell = snippet("Shell"), link = snippet("Link");
  const refusal = h("p", { class: "refusal", role: "alert", hidden: true });
  const buttons = FORMATS.map(([format, title]) => h("button", { type: "button", "data-format": format, onclick: (e) => download(format, e.currentTarget) }, title));
  const element = h("details", { class: "takeaway" }, h("summary", {}, h("h2", {}, "Export this view"), h("span", { class: "quiet" }, "Python, shell, figures, data, a link")),
    h("div", { class: "inside" }, refusal, reproducible ? [python.element, shell.element] : null, link.element,
      h("div", { class: "files" }, h("h3", { id: "files-title" }, "Files"), h("div", { class: "buttons", role: "group", "aria-labelledby": "files-title" }, buttons),
        h("p", { class: "quiet" }, "Figures are in the print style; CSV and netCDF contain every control, size and seed with the values; the snapshot holds plot and text, and opens anywhere."))));

  const fetchAll = settled(250, async () => {
    const { view, link: address, also } = current();
    link.show(address);
    if (!reproducible) return;
    try {
      const answer = await api.reproduce(forServer(view), also);
      python.show(answer.python);
      shell.show(answer.shell);
      refuse("");
    } catch (problem) { refuse(problem.message); }
  });
  element.addEventListener("toggle", () => { if (element.open) fetchAll(); });

  async function download(format, button) {
    const { view, job, also } = current();
    button.disabled = true;
    button.classList.add("waiting");
    try {
      const file = await api.exported(view.study ? view : forServer(view), format, job, also);
      const address = URL.createObjectURL(file.blob);
      const anchor = h("a", { href: address, download: file.name });
      document.body.append(anchor);
      anchor.click();
      anchor.remove();
      setTimeout(() => URL.revokeObjectURL(address), 10000);
      refuse("");
      announce(`Downloaded ${file.name}.`);
    } catch (problem) { refuse(problem.message); }
    button.disabled = false;
    button.classList.remove("waiting");
  }

  function refuse(sentence) {
    refusal.hidden = !sentence;
    refusal.textContent = sentence;
  }

  return { element, update() { if (element.open) fetchAll(); } };
}

function snippet(title) {
  const code = h("code", {});
  const button = h("button", { type: "button", class: "copy", "aria-label": `Copy ${title.toLowerCase()}`, onclick: async () => {
    const done = await copy(code.textContent);
    button.textContent = done ? "Copied" : "Select it manually";
    announce(done ? `${title} copied.` : "The browser refused to copy.");
    setTimeout(() => { button.textContent = "Copy"; }, 1600);
  } }, "Copy");
  const element = h("div", { class: "snippet", "data-what": title.toLowerCase() }, h("div", { class: "bar" }, h("h3", {}, title), button), h("pre", { tabindex: "0", "aria-label": title }, code));
  return { element, show(text) { code.textContent = text; } };
}
