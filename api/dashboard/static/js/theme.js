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
  const middle = (element) => {
    const { left, width } = element.getBoundingClientRect();
    return left + width / 2;
  };
  addEventListener("DOMContentLoaded", () => {
    // On a phone the navigation scrolls: where one is has to be in sight. It alone is moved;
    // scrollIntoView would have the keyboard go on from there, past the link to the content.
    const nav = document.querySelector(".top nav");
    const current = nav?.querySelector("[aria-current]");
    if (current) nav.scrollLeft += middle(current) - middle(nav);
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
