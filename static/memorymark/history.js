// The history's checkboxes: select a whole page, and show how many are selected. The buttons work
// without this file too; the server reports a missing selection.
"use strict";

(() => {
  const boxes = () => [...document.querySelectorAll('input[name="ids"][form="selection"]')];

  function show() {
    const all = document.querySelector("[data-select-all]");
    const status = document.querySelector("[data-selected]");
    if (!all || !status) return;
    const count = boxes().filter((box) => box.checked).length;
    all.hidden = false;
    all.checked = count > 0 && count === boxes().length;
    all.indeterminate = count > 0 && !all.checked;
    const text = count ? `${count} selected:` : "With selected:";
    if (status.textContent !== text) status.textContent = text;
  }

  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-select-all]")) {
      for (const box of boxes()) box.checked = event.target.checked;
    }
    show();
  });
  document.addEventListener("htmx:afterSettle", show);
  window.addEventListener("pageshow", show); // going back restores the checkboxes
})();
