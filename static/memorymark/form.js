// The form of a new analysis: options and hints that depend on the chosen model.
"use strict";

(() => {
  const form = document.querySelector(".analysis-form");
  if (!form) return;
  const facts = document.getElementById("model-facts");
  const task = form.elements.namedItem("task");

  function say(radio) {
    facts.textContent = radio.dataset.facts;
    for (const size of ["sequence_length", "image_size", "image_count", "target_count", "frame_count", "audio_seconds"]) {
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

  // An uploaded config takes the place of a preset, and a preset that of the upload.
  const upload = form.elements.namedItem("config_file");
  const recipe = form.elements.namedItem("recipe_file");
  for (const note of form.querySelectorAll("[data-without-script]")) note.hidden = true;
  const command = document.getElementById("script-command");

  function changed(field) {
    if (field.name === "model") {
      say(field);
      if (field.dataset.kind !== "other") upload.value = "";
    } else if (field === upload && upload.files.length) {
      const other = form.querySelector('[name=model][value="other"]');
      other.checked = true;
      other.dispatchEvent(new Event("change", { bubbles: true }));
    } else if (field === recipe && recipe.files.length) {
      form.requestSubmit(); // comes back filled in
    } else if (field.name === "lengths_file" && field.files.length) {
      const batching = form.elements.namedItem("batching");
      if (batching.value !== "fixed") return;
      batching.value = "longest"; // a fixed length does not depend on them
      batching.dispatchEvent(new Event("input", { bubbles: true }));
    } else if (field.name === "recipe_framework" && field.value && form.elements.namedItem("recipe_beside").value === "?") {
      form.requestSubmit(); // so does one that has waited for its framework
    } else if (field.name === "gpu" && !field.value.startsWith("local")) {
      command.textContent = command.textContent.replace(/--gpu \S+/, `--gpu ${field.value}`);
    }
  }
  form.addEventListener("change", (event) => changed(event.target));
  // Training presets: links that fill the fields in place.
  const said = form.querySelector("[data-preset-said]");
  const links = [...form.querySelectorAll("[data-preset]")];
  function press(link) {
    const values = JSON.parse(link.dataset.values);
    const radio = form.querySelector("[name=model]:checked");
    const offered = radio ? radio.dataset.tasks.split(" ") : [];
    values.task = link.dataset.tasks.split(" ").find((one) => offered.includes(one)) ?? "";
    for (const [name, value] of Object.entries(values)) {
      const field = form.elements.namedItem(name);
      if (field.type === "checkbox") field.checked = value === "on";
      else field.value = value;
    }
    for (const other of links) other.toggleAttribute("aria-current", other === link);
    said.textContent = `${link.textContent} is filled in.`;
    form.elements.namedItem("precision").dispatchEvent(new Event("input", { bubbles: true }));
  }
  for (const link of links) {
    link.addEventListener("click", (event) => {
      event.preventDefault();
      press(link);
    });
  }
  form.addEventListener("preset-named", (event) => press(event.target)); // by the search for models

  const chosen = () => form.querySelector("[name=model]:checked");

  // A model that suits the question, offered instead of one that does not.
  form.addEventListener("click", (event) => {
    const offer = event.target.closest("[data-offer]");
    if (!offer) return;
    event.preventDefault();
    const radio = form.querySelector(`[name=model][value="${CSS.escape(offer.dataset.offer)}"]`);
    radio.checked = true;
    task.value = ""; // its usual one
    for (const type of ["input", "change"]) radio.dispatchEvent(new Event(type, { bubbles: true }));
    form.querySelector("[type=submit]").focus(); // the link goes with the panel's next answer
  });

  // A form that was sent after its session had ended comes back after sign-in. It stays in this
  // tab; site.js removes it on the next page that is neither this form nor sign-in.
  const KEPT = "memorymark-form";
  const LARGEST_KEPT = 2_000_000;

  function keep() {
    const fields = [...new FormData(form)].filter(
      ([name, value]) => name !== "csrfmiddlewaretoken" && typeof value === "string",
    );
    const text = JSON.stringify(fields);
    if (text.length <= LARGEST_KEPT) sessionStorage.setItem(KEPT, text);
  }

  function restore() {
    const text = sessionStorage.getItem(KEPT);
    sessionStorage.removeItem(KEPT);
    if (!text || form.querySelector(".message-error, [data-filled-in]")) return; // the server has kept it
    for (const box of form.querySelectorAll("[type=checkbox]")) box.checked = false;
    for (const [name, value] of JSON.parse(text)) {
      for (const field of form.querySelectorAll(`[name="${CSS.escape(name)}"]`)) {
        if (field.type === "checkbox" || field.type === "radio") field.checked ||= field.value === value;
        else field.value = value;
      }
    }
    form.querySelector("[data-restored]").hidden = false;
  }

  form.addEventListener("submit", keep);
  restore();

  // What does not combine, from the engine's own table, is not offered. A value that was chosen
  // before stays, and the answer says what to change.
  const combinations = JSON.parse(document.getElementById("combinations").textContent);
  const combined = [...new Set(combinations.map((one) => one.this.name))].map((name) => form.elements.namedItem(name));
  const includes = (some, value) => some.values.includes(value) !== some.excluded;
  const valueOf = (field) => (field.type === "checkbox" ? (field.checked ? "on" : "") : field.value);

  // An uploaded list becomes the sample lengths on the server.
  const lengths = form.elements.namedItem("lengths_file");
  const givenFor = (field) => valueOf(field) || (field.name === "sample_lengths" ? lengths.value : "");

  function refusal(field, value) {
    const reason = combinations.find(
      ({ this: one, others }) =>
        one.name === field.name &&
        includes(one, value) &&
        others.every((other) => includes(other, givenFor(form.elements.namedItem(other.name)))),
    );
    return reason?.message ?? "";
  }

  function disableOptions(select) {
    for (const option of select.options) {
      option.title = option.selected ? "" : refusal(select, option.value);
      option.disabled = option.title !== "";
    }
  }

  function disableInput(input) {
    const help = document.getElementById(`${input.id}_helptext`);
    help.dataset.usual ??= help.textContent;
    const reason = valueOf(input) ? "" : refusal(input, "on"); // any value stands for all
    input.disabled = reason !== "";
    help.textContent = reason || help.dataset.usual;
  }

  function combine() {
    for (const field of combined) (field.options ? disableOptions : disableInput)(field);
  }
  form.addEventListener("input", combine);
  combine();

  // The fold of each advanced group says what is set in it, as the server does.
  function shownValue(field) {
    if (field.type === "checkbox") return "on";
    return field.options ? field.selectedOptions[0].text : field.value;
  }
  function summarize(group) {
    const fields = [...group.querySelectorAll("[data-default]")];
    const changed = fields.filter((field) => {
      const value = valueOf(field);
      return value !== "" && value !== field.dataset.default;
    });
    group.querySelector("[data-set]").textContent = changed
      .map((field) => `${field.labels[0].textContent.trim()}: ${shownValue(field)}`)
      .join(", ");
  }
  function summarizeAll() {
    form.querySelectorAll("[data-group]").forEach(summarize);
  }
  form.addEventListener("input", summarizeAll);
  summarizeAll();

  // The preview while settings are typed; it needs htmx, so it starts hidden.
  const preview = document.getElementById("preview");
  const answer = document.getElementById("preview-answer");
  const state = preview?.querySelector("[data-preview-state]");

  function mark(isOld, text, link) {
    preview.classList.toggle("preview-old", isOld);
    state.textContent = text;
    if (link) {
      const anchor = document.createElement("a");
      anchor.href = link;
      anchor.textContent = "Sign in";
      state.append(" ", anchor);
    }
  }

  function fail(text, link) {
    answer.replaceChildren(); // no old figure looks new
    mark(false, text, link);
  }

  function watchPreview() {
    preview.hidden = false;
    form.addEventListener("input", () => mark(true, "Updating…"));
    document.addEventListener("DOMContentLoaded", () => htmx.trigger(preview, "preview-shown"));
    preview.addEventListener("htmx:afterSwap", () => {
      if (!answer.querySelector("[hx-get]")) mark(false, "");
    });
    preview.addEventListener("htmx:beforeOnLoad", (event) => {
      const link = event.detail.xhr.getResponseHeader("HX-Redirect");
      if (!link) return;
      event.preventDefault(); // sign-in would leave the form
      keep();
      fail("Your session has ended. The form is kept.", link);
    });
    preview.addEventListener("htmx:responseError", (event) => {
      fail(`The site answered with error ${event.detail.xhr.status}. Change a field to try again.`);
    });
    for (const type of ["htmx:sendError", "htmx:timeout"]) {
      preview.addEventListener(type, () => fail("No connection to the site. Change a field to try again."));
    }
  }
  if (preview && window.htmx) watchPreview();

  if (chosen()) say(chosen());
})();
