// Copy buttons and links: [data-copy] names the field, the text, or the element whose children are the lines.
"use strict";

(() => {
  const SAID_MILLISECONDS = 2000;

  function textOf(source) {
    if ("value" in source) return source.value;
    if (!source.children.length) return source.textContent;
    return [...source.children].map((line) => line.textContent.trim()).join("\n");
  }

  // Browsers only offer the clipboard over HTTPS and on localhost; a lab may have neither.
  function copyByHand(text) {
    const area = document.createElement("textarea");
    area.value = text;
    area.className = "visually-hidden";
    document.body.append(area);
    area.select();
    const copied = document.execCommand("copy");
    area.remove();
    return copied;
  }

  async function copy(text) {
    if (!navigator.clipboard) return copyByHand(text);
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      return copyByHand(text); // the user has denied access to the clipboard
    }
  }

  function reveal() {
    for (const button of document.querySelectorAll("[data-copy][hidden]")) {
      button.hidden = false;
      button.setAttribute("aria-live", "polite");
    }
  }

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    event.preventDefault(); // a link leads to the text for those without this script
    const copied = await copy(textOf(document.getElementById(button.dataset.copy)));
    button.dataset.label ??= button.textContent;
    button.focus();
    button.textContent = copied ? "Copied" : "Could not copy. Select it manually";
    setTimeout(() => { button.textContent = button.dataset.label; }, SAID_MILLISECONDS);
  });
  document.addEventListener("htmx:afterSettle", reveal);
  reveal();
})();
