// Runs before the first paint: restores the appearance and preloads the plotting library if it will be needed.
(function () {
  if (/[?&](model|study)=/.test(location.search)) {
    var link = document.createElement("link");
    link.rel = "preload";
    link.as = "script";
    link.href = "/plotly.js";
    document.head.append(link);
  }
  try {
    var theme = localStorage.getItem("theme"), type = localStorage.getItem("type");
    if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
    if (type === "large") document.documentElement.dataset.type = "large";
  } catch (refused) { /* storage may be forbidden: use the defaults */ }
})();
