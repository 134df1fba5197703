// Tabs: shows one [data-panel] at a time. Without JavaScript all of them are shown.
"use strict";

(() => {
  const tabs = () => [...document.querySelectorAll("[data-tab]")];

  function select(name) {
    for (const tab of tabs()) {
      const chosen = tab.dataset.tab === name;
      tab.setAttribute("aria-selected", String(chosen));
      tab.tabIndex = chosen ? 0 : -1;
    }
    for (const panel of document.querySelectorAll("[data-panel]")) {
      panel.hidden = panel.dataset.panel !== name;
      panel.setAttribute("role", "tabpanel");
      panel.setAttribute("aria-labelledby", `tab-${panel.dataset.panel}`);
    }
  }

  // A link to something in a panel opens it.
  function selectTarget() {
    const target = location.hash && document.getElementById(location.hash.slice(1));
    const panel = target && target.closest("[data-panel]");
    if (!panel || !tabs().length) return;
    select(panel.dataset.panel);
    target.scrollIntoView();
  }

  function start() {
    const list = document.querySelector("[role=tablist][hidden]");
    if (!list) return;
    list.hidden = false;
    select(tabs()[0].dataset.tab);
    selectTarget();
  }

  document.addEventListener("click", (event) => {
    const tab = event.target.closest("[data-tab]");
    if (tab) select(tab.dataset.tab);
  });
  document.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step || !event.target.matches("[data-tab]")) return;
    const all = tabs();
    const next = all[(all.indexOf(event.target) + step + all.length) % all.length];
    select(next.dataset.tab);
    next.focus();
  });
  window.addEventListener("hashchange", selectTarget);
  document.addEventListener("htmx:afterSettle", start);
  start();
})();
