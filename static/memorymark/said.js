// Says a decision that arrives or changes while the page is open to screen readers, once. The part of
// the page that has it is replaced as a whole, so it can be no live region itself.
"use strict";

(() => {
  const region = document.getElementById("said");
  const decision = () =>
    [...document.querySelectorAll("#analysis [data-say]")].map((part) => part.textContent.trim()).join(" ");
  let last = decision();

  document.body.addEventListener("htmx:afterSettle", () => {
    const now = decision();
    if (now === last) return;
    last = now;
    region.textContent = now;
  });
})();
