// Before the page is first painted: the remembered appearance, and the plotting library where it will be needed.
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
  } catch (refused) { /* storage may be forbidden: the defaults do */ }
})();
