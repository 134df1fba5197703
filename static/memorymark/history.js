// The boxes of the history: tick a whole page at once, and say how many are ticked. Without this
// file the buttons work all the same; the server says what is missing.
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
  window.addEventListener("pageshow", show); // a browser that goes back ticks the boxes again
})();
