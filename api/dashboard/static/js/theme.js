// Light or dark, before the first paint: this script is no module, so the page waits for it.
(() => {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const chosen = () => {
    try {
      return localStorage.getItem("kdnas-theme");
    } catch {
      return null; // storage is switched off: the system's choice holds
    }
  };
  const apply = () => {
    const theme = chosen() ?? (system.matches ? "dark" : "light");
    document.documentElement.dataset.theme = theme;
    document.dispatchEvent(new CustomEvent("themechange"));
  };
  apply();
  system.addEventListener("change", apply);
  addEventListener("DOMContentLoaded", () => {
    document.getElementById("theme")?.addEventListener("click", () => {
      const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
      try {
        localStorage.setItem("kdnas-theme", next);
      } catch {
        document.documentElement.dataset.theme = next;
      }
      apply();
    });
  });
})();
