// The form of a new analysis: options and hints that depend on the chosen model.
"use strict";

(() => {
  const form = document.querySelector(".analysis-form");
  if (!form) return;
  const facts = document.getElementById("model-facts");
  const task = form.elements.namedItem("task");

  function say(radio) {
    facts.textContent = radio.dataset.facts;
    for (const size of ["sequence_length", "image_size"]) {
      const help = document.getElementById(`id_${size}_helptext`);
      if (help) help.textContent = radio.getAttribute(`data-${size}`);
    }
    // Disable tasks the model has no head for; if one was chosen, fall back to the model's own.
    const possible = radio.dataset.tasks.split(" ");
    for (const option of task.options) {
      option.disabled = option.value !== "" && !possible.includes(option.value);
      if (option.selected && option.disabled) task.value = "";
    }
  }

  form.addEventListener("change", (event) => {
    if (event.target.name === "model") say(event.target);
  });
  // The preview while settings are typed; it needs htmx, so it starts hidden.
  const preview = document.getElementById("preview");
  if (preview && window.htmx) {
    preview.hidden = false;
    document.addEventListener("DOMContentLoaded", () => htmx.trigger(preview, "preview-shown"));
  }

  const chosen = form.querySelector("[name=model]:checked");
  if (chosen) say(chosen);
})();
