// Draws each [data-chart] from the plotly figure in the JSON script it names, once it is about to be
// seen, and offers it as a file. The library is large, so it is loaded with the first of them.
"use strict";

(() => {
  const CONFIG = { displayModeBar: false, responsive: true };
  const LEGEND_LINE = 18; // pixels; on a phone each legend entry needs its own line
  const PAGE_MARGINS = 90; // pixels: of the page and of a card
  const LIBRARY = document.currentScript.dataset.library;
  let loading;

  function load() {
    loading ??= new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = LIBRARY;
      script.addEventListener("load", resolve);
      script.addEventListener("error", reject);
      document.head.append(script);
    });
    return loading;
  }

  // The figure names the stylesheet's fonts and colours; plotly needs their values.
  function resolved(value, probe) {
    if (typeof value === "string") {
      return value.replace(/var\(--[\w-]+\)/g, (name) => {
        const property = name.startsWith("var(--font") ? "fontFamily" : "color";
        probe.style[property] = name;
        return getComputedStyle(probe)[property];
      });
    }
    if (Array.isArray(value)) return value.map((item) => resolved(item, probe));
    if (value !== null && typeof value === "object") {
      return Object.fromEntries(
        Object.entries(value).map(([key, item]) => [key, resolved(item, probe)]),
      );
    }
    return value;
  }

  function resolvedIn(element, figure) {
    const probe = element.appendChild(document.createElement("span"));
    const found = resolved(figure, probe);
    probe.remove();
    return found;
  }

  // `given` is the width where it is not the element's own, as in a print or in a closed tab.
  async function draw(element, given) {
    try {
      await load();
    } catch {
      element.textContent = "The chart could not be loaded. Reload the page to try again.";
      return;
    }
    const script = document.getElementById(element.dataset.chart);
    const figure = resolvedIn(document.body, JSON.parse(script.textContent));
    const main = document.getElementById("main");
    const width = given ?? (element.clientWidth || main.clientWidth - PAGE_MARGINS);
    if (width !== element.clientWidth) figure.layout.width = width;
    if (width < 520) {
      const entries = figure.data.filter((trace) => trace.showlegend !== false).length;
      figure.layout.height += LEGEND_LINE * entries;
    }
    await window.Plotly.react(element, figure.data, figure.layout, CONFIG);
    if (!element.nextElementSibling?.matches(".chart-files")) element.after(files(element));
  }

  function files(element) {
    const list = document.createElement("p");
    list.className = "chart-files";
    for (const format of ["png", "svg"]) {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "link-button";
      button.textContent = format.toUpperCase();
      button.setAttribute("aria-label", `Save this chart as ${format.toUpperCase()}`);
      button.addEventListener("click", () => save(element, format));
      list.append(button);
    }
    return list;
  }

  function save(element, format) {
    const background = resolvedIn(document.body, "var(--card)"); // a file has no page behind it
    window.Plotly.downloadImage(
      { data: element.data, layout: { ...element.layout, paper_bgcolor: background } },
      {
        format,
        filename: `memorymark-${element.dataset.chart.replace("-figure", "")}`,
        width: element.clientWidth,
        height: element.clientHeight,
        scale: format === "png" ? 2 : 1, // sharp on slides
      },
    );
  }

  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries.filter((each) => each.isIntersecting)) {
      seen.unobserve(entry.target);
      draw(entry.target);
    }
  }, { rootMargin: "300px" });

  const notDrawn = () => [...document.querySelectorAll("[data-chart]:not(.js-plotly-plot)")];

  function watch() {
    notDrawn().forEach((chart) => seen.observe(chart));
  }

  // Once the page is at rest, the others too: a picture of the whole page and a print show all of it.
  // One in a closed tab has no width yet, so it takes that of the page; opened, it is drawn again.
  const AT_REST_MILLISECONDS = 3000;

  function drawOthers() {
    for (const chart of notDrawn()) draw(chart);
  }
  window.addEventListener("load", () => setTimeout(drawOthers, AT_REST_MILLISECONDS));

  // Paper is white and narrow.
  const PRINTED_WIDTH = 640;
  const root = document.documentElement;
  let theme;
  window.addEventListener("beforeprint", () => {
    theme = root.dataset.theme;
    root.dataset.theme = "light";
    for (const chart of document.querySelectorAll("[data-chart]")) draw(chart, PRINTED_WIDTH);
  });
  window.addEventListener("afterprint", () => {
    root.dataset.theme = theme;
    drawAgain();
  });

  function drawAgain() {
    for (const chart of document.querySelectorAll("[data-chart].js-plotly-plot")) draw(chart);
  }

  watch();
  document.addEventListener("htmx:afterSettle", watch);
  document.addEventListener("themechange", drawAgain);
  window.matchMedia("(prefers-color-scheme: light)").addEventListener("change", drawAgain);
})();
