// Light or dark, and larger type for a projector; both are remembered.

function remember(name, value) {
  try { localStorage.setItem(name, value); } catch { /* not stored: lasts as long as the page */ }
}

const root = document.documentElement;
const prefersDark = matchMedia("(prefers-color-scheme: dark)");
export const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : prefersDark.matches);

/** Connect the two buttons of the masthead; `changed` redraws everything that takes colours from the style sheet. */
export function appearance(changed) {
  const theme = document.getElementById("theme"), label = document.getElementById("theme-says"), type = document.getElementById("type");
  const update = () => {
    label.textContent = isDark() ? "Light appearance" : "Dark appearance";
    type.setAttribute("aria-pressed", String(root.dataset.type === "large"));
  };
  theme.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    remember("theme", root.dataset.theme);
    update();
    changed();
  });
  type.addEventListener("click", () => {
    root.dataset.type = root.dataset.type === "large" ? "normal" : "large";
    remember("type", root.dataset.type);
    update();
    changed();
  });
  prefersDark.addEventListener("change", () => { update(); changed(); });
  update();
}
