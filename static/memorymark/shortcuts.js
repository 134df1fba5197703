// Keyboard shortcuts. An element has its key in data-key ("n", or "g s" for one after the other)
// and its description in data-key-label; the sheet that ? opens lists those on the page.
"use strict";

(() => {
  const sheet = document.getElementById("shortcuts");
  if (!sheet) return;
  const opener = document.querySelector("[data-shortcuts-open]");
  const OFF = "shortcuts-off"; // single letters interfere with speech input, so they can be turned off
  const SEQUENCE_MS = 1200;
  let pending = "";
  let pendingSince = 0;

  const isOff = () => localStorage.getItem(OFF) === "1";
  const shown = (element) => element.checkVisibility();
  const named = () => [...document.querySelectorAll("[data-key]")].filter(shown);
  const rows = () => [...document.querySelectorAll("[data-key-rows] tbody tr")].filter(shown);
  const linkOf = (row) => row.querySelector("a[href]");

  function entry(keys, label) {
    const term = document.createElement("dt");
    keys.split(" ").forEach((key, index) => {
      if (index) term.append(" then ");
      term.append(Object.assign(document.createElement("kbd"), { textContent: key }));
    });
    return [term, Object.assign(document.createElement("dd"), { textContent: label })];
  }

  function open() {
    const entries = new Map([["?", "Show this list"]]);
    if (rows().length) {
      entries.set("j", "Next row").set("k", "Previous row");
      if (document.querySelector("[data-key-rows] [type=checkbox]")) entries.set("x", "Select the row");
    }
    if (document.getElementById("palette")) entries.set("Ctrl+K", "Search everything (⌘K on a Mac)");
    for (const element of named()) entries.set(element.dataset.key, element.dataset.keyLabel);
    const list = sheet.querySelector("dl");
    list.replaceChildren(...[...entries].flatMap(([keys, label]) => entry(keys, label)));
    sheet.querySelector("[type=checkbox]").checked = !isOff();
    sheet.showModal();
  }

  function act(element) {
    if (element.matches("input, select, textarea")) {
      element.focus();
      element.select?.();
    } else element.click();
  }

  function move(step) {
    const all = rows();
    const at = all.findIndex((row) => row.contains(document.activeElement));
    const next = all[at < 0 ? (step > 0 ? 0 : all.length - 1) : at + step];
    if (next) linkOf(next).focus();
  }

  // Whether the page has this key.
  function press(keys) {
    if (rows().length && (keys === "j" || keys === "k")) {
      move(keys === "j" ? 1 : -1);
      return true;
    }
    if (keys === "x") {
      const row = document.activeElement.closest("[data-key-rows] tbody tr");
      const box = row && row.querySelector("[type=checkbox]");
      if (box) box.click();
      return Boolean(box);
    }
    const element = named().find((candidate) => candidate.dataset.key === keys);
    if (element) act(element);
    return Boolean(element);
  }

  document.addEventListener("keydown", (event) => {
    // A dialog just closed keeps the focus until the next frame, so only an open one takes the keys.
    const typing = event.target.closest("input:not([type=checkbox]), select, textarea, dialog[open]");
    if (typing || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (event.key === "?") {
      event.preventDefault();
      open();
      return;
    }
    if (isOff() || event.key.length !== 1) return;
    const now = performance.now();
    const keys = pending && now - pendingSince < SEQUENCE_MS ? `${pending} ${event.key}` : event.key;
    pending = "";
    if (press(keys)) event.preventDefault();
    else if (named().some((element) => element.dataset.key.startsWith(`${keys} `))) {
      [pending, pendingSince] = [keys, now];
    }
  });

  opener.hidden = false;
  opener.addEventListener("click", open);
  sheet.querySelector("[type=checkbox]").addEventListener("change", (event) => {
    if (event.target.checked) localStorage.removeItem(OFF);
    else localStorage.setItem(OFF, "1");
  });
})();
