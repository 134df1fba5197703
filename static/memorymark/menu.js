// Menus are details elements; this also closes them on Escape, outside clicks and followed links.
"use strict";

(() => {
  const opened = () => document.querySelectorAll("details.menu[open]");

  document.addEventListener("click", (event) => {
    for (const menu of opened()) {
      if (!menu.contains(event.target) || event.target.closest("a")) menu.open = false;
    }
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    for (const menu of opened()) {
      const had = menu.contains(document.activeElement);
      menu.open = false;
      if (had) menu.querySelector("summary").focus();
    }
  });
})();
