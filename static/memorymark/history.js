// The history's checkboxes, tags edited in a row, and Backspace in its search. Ticks are kept in the browser, for this
// member, across pages and visits. Without this file they hold for one page, and the buttons work.
"use strict";

(() => {
  const form = () => document.getElementById("selection");
  const boxes = () => [...document.querySelectorAll('input[name="ids"][form="selection"]')];
  const key = () => `memorymark-selection-${form().dataset.member}`;

  function kept() {
    try {
      const ids = JSON.parse(localStorage.getItem(key()));
      return new Set(Array.isArray(ids) ? ids.map(String) : []);
    } catch {
      return new Set(); // no storage, or another program's text in it
    }
  }

  function keep(ids) {
    try {
      localStorage.setItem(key(), JSON.stringify([...ids]));
    } catch {
      // No storage: ticks hold for this page.
    }
  }

  function ticked() {
    const ids = kept();
    for (const box of boxes()) box.checked ? ids.add(box.value) : ids.delete(box.value);
    return ids;
  }

  function sendElsewhere(ids) {
    for (const input of form().querySelectorAll("[data-elsewhere]")) input.remove();
    const here = new Set(boxes().map((box) => box.value));
    const elsewhere = [...ids].filter((id) => !here.has(id));
    for (const id of elsewhere) {
      const input = document.createElement("input");
      Object.assign(input, { type: "hidden", name: "ids", value: id });
      input.dataset.elsewhere = "";
      form().append(input);
    }
    return elsewhere.length;
  }

  function show(ids) {
    const elsewhere = sendElsewhere(ids);
    const here = boxes().filter((box) => box.checked).length;
    const all = document.querySelector("[data-select-all]");
    if (all) {
      all.hidden = false;
      all.checked = here > 0 && here === boxes().length;
      all.indeterminate = here > 0 && !all.checked;
    }
    const on = elsewhere ? ` (${elsewhere} not on this page)` : "";
    const text = ids.size ? `${ids.size} selected${on}:` : "With selected:";
    const status = document.querySelector("[data-selected]");
    if (status.textContent !== text) status.textContent = text;
    document.querySelector("[data-clear-selection]").hidden = !ids.size;
  }

  // An address that ticks, as from a comparison, says all that is ticked; from then on the browser does.
  function takeTicksOfAddress() {
    if (!form().dataset.tick) return;
    keep(form().dataset.tick.split(","));
    delete form().dataset.tick;
    const address = new URL(window.location);
    address.searchParams.delete("tick");
    window.history.replaceState(window.history.state, "", address);
  }

  function restore() {
    if (!form()) return;
    takeTicksOfAddress();
    const ids = kept();
    for (const box of boxes()) box.checked = ids.has(box.value);
    show(ids);
  }

  document.addEventListener("change", (event) => {
    if (!form() || !event.target.matches('[data-select-all], input[form="selection"]')) return;
    if (event.target.matches("[data-select-all]")) {
      for (const box of boxes()) box.checked = event.target.checked;
    }
    const ids = ticked();
    keep(ids);
    show(ids);
  });

  document.addEventListener("click", (event) => {
    if (!event.target.matches("[data-clear-selection]")) return;
    keep([]);
    restore();
  });

  // What is deleted cannot be selected any more.
  document.addEventListener("submit", (event) => {
    if (event.target.id === "selection" && event.submitter?.value === "delete") keep([]);
  });

  document.addEventListener("keydown", (event) => {
    if (event.key !== "Backspace" || event.target.id !== "id_q" || event.target.value) return;
    const chips = document.querySelectorAll("#search-bar a.label");
    chips[chips.length - 1]?.click();
  });

  // Rows that change meanwhile must not take the form away in which somebody writes tags.
  document.addEventListener("htmx:beforeRequest", (event) => {
    if (event.target.id === "rows" && document.querySelector(".tags-form")) event.preventDefault();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") event.target.closest(".tags-form")?.querySelector("[data-cancel]").click();
  });

  document.addEventListener("htmx:afterSettle", restore);
  window.addEventListener("pageshow", restore);
})();
