// Puts the remembered appearance on the page before it is first painted.
(function () {
  try {
    var theme = localStorage.getItem("theme"), type = localStorage.getItem("type");
    if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
    if (type === "large") document.documentElement.dataset.type = "large";
  } catch (refused) { /* storage may be forbidden: the defaults do */ }
})();
