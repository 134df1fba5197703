// Draws each [data-chart] from the plotly figure in the JSON script it names.
"use strict";

(() => {
  const CONFIG = { displayModeBar: false, responsive: true };
  const LEGEND_LINE = 18; // pixels; on a phone each legend entry needs its own line

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

  function draw(element) {
    const script = document.getElementById(element.dataset.chart);
    const figure = resolved(JSON.parse(script.textContent), getComputedStyle(document.body));
    if (element.clientWidth < 520) {
      const entries = figure.data.filter((trace) => trace.showlegend !== false).length;
      figure.layout.height += LEGEND_LINE * entries;
    }
    window.Plotly.react(element, figure.data, figure.layout, CONFIG);
  }

  function drawAll() {
    document.querySelectorAll("[data-chart]").forEach(draw);
  }

  drawAll();
  document.addEventListener("htmx:afterSettle", () => {
    document.querySelectorAll("[data-chart]:not(.js-plotly-plot)").forEach(draw);
  });
  document.addEventListener("themechange", drawAll);
  window.matchMedia("(prefers-color-scheme: light)").addEventListener("change", drawAll);
})();
