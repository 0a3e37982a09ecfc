// The frame of every page: light or dark before the first paint (this script is no module, so the
// page waits for it), and where one is in the navigation.
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
    // On a phone the navigation scrolls: where one is has to be in sight.
    const current = document.querySelector(".top nav [aria-current]");
    current?.scrollIntoView({ inline: "center", block: "nearest" });
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
