// Comparing settings: each long list of chips gets a search, and starts with the form's own choice.
"use strict";

(() => {
  const form = document.querySelector(".analysis-form");
  if (!form) return;
  const MANY = 12; // chips; fewer need no search
  const OF_FIELD = { model: "compared_models", gpu: "compared_gpus", precision: "compared_precisions" };

  function filter(input) {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const chip of input.parentElement.querySelectorAll(".chip")) {
      const text = `${chip.textContent} ${chip.firstElementChild.value}`.toLowerCase();
      chip.hidden = !chip.firstElementChild.checked && !words.every((word) => text.includes(word));
    }
  }

  for (const input of form.querySelectorAll("[data-chip-search]")) {
    input.hidden = input.parentElement.querySelectorAll(".chip").length < MANY;
    input.addEventListener("input", (event) => {
      event.stopPropagation(); // it is no field of the form
      filter(input);
    });
    input.addEventListener("keydown", (event) => {
      if (event.key === "Enter") event.preventDefault(); // it must not submit the form
    });
  }

  // Where nothing but the form's own choice is ticked, another choice takes its place.
  function follow(field) {
    const chips = [...form.querySelectorAll(`[name="${OF_FIELD[field.name]}"]`)];
    const own = chips.find((chip) => chip.value === field.value);
    if (chips.filter((chip) => chip.checked).length > 1) return;
    for (const chip of chips) chip.checked = chip === own;
  }

  function followBatch(field) {
    const batches = form.elements.namedItem("compared_batches");
    if (!batches.value.includes(",")) batches.value = field.value;
  }

  form.addEventListener("change", (event) => {
    if (event.target.name in OF_FIELD) follow(event.target);
    if (event.target.name === "current_batch_size") followBatch(event.target);
  });
})();
