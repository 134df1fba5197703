// The command palette, opened by Ctrl+K or ⌘K. The server searches; the input keeps the focus while
// arrow keys choose. Without this file the button in the header leads to the search page.
"use strict";

(() => {
  const palette = document.getElementById("palette");
  if (!palette) return;
  const input = palette.querySelector("[role=combobox]");
  const form = palette.querySelector("form");
  const found = () => document.getElementById("palette-found");
  const options = () => [...palette.querySelectorAll("[role=option]")];
  let active = null;
  let isTaking = false; // Enter came before the answer to what is typed

  function activate(option) {
    active?.setAttribute("aria-selected", "false");
    active = option ?? null;
    active?.setAttribute("aria-selected", "true");
    active?.scrollIntoView({ block: "nearest" });
    if (active) input.setAttribute("aria-activedescendant", active.id);
    else input.removeAttribute("aria-activedescendant");
  }

  function open() {
    if (palette.open || document.querySelector("dialog[open]")) return;
    palette.showModal();
    input.select();
    form.dispatchEvent(new Event("palette-opened"));
  }

  function move(step) {
    const all = options();
    if (all.length) activate(all.at((all.indexOf(active) + step) % all.length));
  }

  function take() {
    isTaking = found().dataset.of !== input.value.trim();
    if (!isTaking) active?.click();
  }

  const keys = {
    ArrowDown: () => move(1),
    ArrowUp: () => move(-1),
    Enter: take,
  };
  input.addEventListener("keydown", (event) => {
    const act = keys[event.key];
    if (!act || event.isComposing) return;
    event.preventDefault();
    act();
  });
  input.addEventListener("input", () => { isTaking = false; });

  document.addEventListener("keydown", (event) => {
    const isKey = (event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey;
    if (!isKey || event.key.toLowerCase() !== "k") return;
    event.preventDefault();
    if (palette.open) palette.close();
    else open();
  });
  document.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    if (event.target === palette) palette.close(); // the backdrop
    if (!event.target.closest("[data-palette-open]")) return;
    event.preventDefault();
    open();
  });
  document.addEventListener("htmx:afterSwap", (event) => {
    if (event.target.id !== "palette-found") return;
    activate(options()[0]);
    if (isTaking) take();
  });
  palette.addEventListener("close", () => { isTaking = false; });
})();
