// Draws each [data-chart] from the plotly figure in the JSON script it names, once it is about to be
// seen. The library is large, so it is loaded with the first of them.
"use strict";

(() => {
  const CONFIG = { displayModeBar: false, responsive: true };
  const LEGEND_LINE = 18; // pixels; on a phone each legend entry needs its own line
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

  // The figure names the stylesheet's colours; plotly needs their values.
  function resolved(value, styles) {
    if (typeof value === "string") {
      return value.replace(/var\((--[\w-]+)\)/g, (_, name) => styles.getPropertyValue(name).trim());
    }
    if (Array.isArray(value)) return value.map((item) => resolved(item, styles));
    if (value !== null && typeof value === "object") {
      return Object.fromEntries(
        Object.entries(value).map(([key, item]) => [key, resolved(item, styles)]),
      );
    }
    return value;
  }

  async function draw(element) {
    try {
      await load();
    } catch {
      element.textContent = "The chart could not be loaded. Reload the page to try again.";
      return;
    }
    const script = document.getElementById(element.dataset.chart);
    const figure = resolved(JSON.parse(script.textContent), getComputedStyle(document.body));
    if (element.clientWidth < 520) {
      const entries = figure.data.filter((trace) => trace.showlegend !== false).length;
      figure.layout.height += LEGEND_LINE * entries;
    }
    window.Plotly.react(element, figure.data, figure.layout, CONFIG);
  }

  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries.filter((each) => each.isIntersecting)) {
      seen.unobserve(entry.target);
      draw(entry.target);
    }
  }, { rootMargin: "300px" });

  function watch() {
    document.querySelectorAll("[data-chart]:not(.js-plotly-plot)").forEach((chart) => seen.observe(chart));
  }

  function drawAgain() {
    document.querySelectorAll("[data-chart].js-plotly-plot").forEach(draw);
  }

  watch();
  document.addEventListener("htmx:afterSettle", watch);
  document.addEventListener("themechange", drawAgain);
  window.matchMedia("(prefers-color-scheme: light)").addEventListener("change", drawAgain);
})();
