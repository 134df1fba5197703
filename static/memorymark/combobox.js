// Model choice as a searchable list. The radio buttons remain the form's real fields: an option
// checks its button and fires a `change` event. Without this file the buttons are shown.
"use strict";

(() => {
  const box = document.querySelector("[data-combobox]");
  if (!box) return;
  const input = box.querySelector("[role=combobox]");
  const list = box.querySelector("[role=listbox]");
  const trainingNote = list.querySelector("[data-training]");
  const status = box.querySelector("[role=status]");
  const options = () => [...list.querySelectorAll("[role=option]")];
  const hubOption = list.querySelector("[data-hub-id]");
  const presets = options().filter((option) => option.dataset.search);
  const plain = document.querySelector("[data-combobox-plain]");
  const hubId = document.getElementById("id_other_model");
  const isHubId = /^[a-z0-9][\w.-]*\/[a-z0-9][\w.-]*$/i;
  // Words that name a way of training apply its preset when a model is taken.
  const training = [...document.querySelectorAll("[data-preset]")];
  // The models of timm are found by their names, where timm is installed: a few at a time.
  const ofTimm = JSON.parse(document.getElementById("timm-names")?.textContent ?? "[]");
  const timmOption = document.getElementById("timm-option")?.content.firstElementChild;
  const MOST_OF_TIMM = 12;
  let active = null;
  let named = null;

  const namedBy = (word) => training.find((link) => link.dataset.words.split(" ").includes(word));

  // "llama 3 8b" is Llama 3 8B rather than Llama 3.1 8B, which stands before it.
  const isNamed = (words) => (option) => {
    const name = option.firstElementChild.textContent.toLowerCase().split(" ");
    return words.every((word) => name.includes(word));
  };

  // Models without an answer to the question are not listed; their radio buttons say for which.
  function suits(option) {
    const radio = plain.querySelector(`[value="${option.dataset.value}"]`);
    const question = box.closest("form").elements.namedItem("ask").value;
    return !radio.dataset.unsuited.split(" ").includes(question);
  }

  const isOpen = () => !list.hidden;
  const shown = () => options().filter((option) => !option.hidden);
  const checked = () => plain.querySelector(":checked");
  function changed(field) {
    for (const type of ["input", "change"]) field.dispatchEvent(new Event(type, { bubbles: true }));
  }

  function chosenName() {
    const radio = checked();
    if (!radio) return "";
    if (radio.dataset.kind === "other") return hubId.value.trim() || "Own config.json";
    return radio.closest("label").querySelector(".model-choice-name").textContent;
  }

  function activate(option) {
    active?.classList.remove("combobox-active");
    active = option ?? null;
    active?.classList.add("combobox-active");
    active?.scrollIntoView({ block: "nearest" });
    if (active) input.setAttribute("aria-activedescendant", active.id);
    else input.removeAttribute("aria-activedescendant");
  }

  function offerTimm(words) {
    for (const option of list.querySelectorAll("[data-timm]")) option.remove();
    const found = words.length ? ofTimm.filter((name) => words.every((word) => name.includes(word))) : [];
    for (const name of found.slice(0, MOST_OF_TIMM)) {
      const option = timmOption.cloneNode(true);
      option.id = `option-${name.replace("/", "-")}`;
      option.dataset.timm = "";
      option.dataset.hubId = name;
      option.firstElementChild.textContent = name;
      hubOption.before(option);
    }
    return found.length;
  }

  function open(typed) {
    const typedWords = typed.toLowerCase().split(/\s+/).filter(Boolean);
    const words = typedWords.filter((word) => !namedBy(word));
    named = typedWords.map(namedBy).find(Boolean) ?? null;
    const suited = presets.filter(suits);
    for (const option of presets) {
      option.hidden = !suited.includes(option) || !words.every((word) => option.dataset.search.includes(word));
      option.setAttribute("aria-selected", String(option.dataset.value === checked()?.value));
    }
    const timmCount = offerTimm(words);
    hubOption.dataset.hubId = typed.trim();
    hubOption.hidden = !isHubId.test(typed.trim()) || ofTimm.includes(typed.trim());
    hubOption.firstElementChild.textContent = `Use hub id ${typed.trim()}`;
    for (const group of list.children) group.hidden = !group.querySelector("[role=option]:not([hidden])");
    const found = presets.filter((option) => !option.hidden).length;
    const how = named ? ` Training: ${named.textContent}.` : "";
    const more = timmCount ? `, and ${timmCount} of timm` : "";
    status.textContent = `${found} of ${suited.length} models match${more}.${how}`;
    trainingNote.textContent = how;
    trainingNote.hidden = !named;
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
    activate(typedWords.length ? (shown().find(isNamed(words)) ?? shown()[0]) : list.querySelector("[aria-selected=true]"));
  }

  function close() {
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
    activate(null);
    status.textContent = "";
    input.value = chosenName();
    if (document.activeElement === input) input.select(); // so that typing replaces the text
  }

  function take(option) {
    const radio = plain.querySelector(`[value="${option.dataset.value}"]`);
    radio.checked = true;
    const { hubId: id } = option.dataset;
    if (id) hubId.value = id;
    const preset = named;
    close();
    changed(radio);
    preset?.dispatchEvent(new Event("preset-named", { bubbles: true }));
    if (id) changed(hubId);
    else if (radio.dataset.kind === "other") document.getElementById("id_config_file").focus();
  }

  function move(step) {
    if (!isOpen()) return open("");
    const now = shown();
    const from = active ? now.indexOf(active) : step > 0 ? -1 : 0;
    activate(now.at((from + step) % now.length));
  }

  const keys = {
    ArrowDown: () => move(1),
    ArrowUp: () => move(-1),
    Enter: () => (isOpen() && active ? take(active) : open("")),
    Escape: close,
  };
  input.addEventListener("keydown", (event) => {
    const act = keys[event.key];
    if (!act || event.isComposing) return;
    event.preventDefault(); // Enter must not submit the form, nor an arrow key move the cursor
    act();
  });
  input.addEventListener("input", () => open(input.value));
  input.addEventListener("focus", () => input.select());
  input.addEventListener("click", () => {
    if (isOpen()) return;
    input.select(); // the click has placed a cursor there
    open("");
  });
  input.addEventListener("blur", close);
  list.addEventListener("pointerdown", (event) => event.preventDefault()); // keep the focus
  list.addEventListener("click", (event) => {
    const option = event.target.closest("[role=option]");
    if (option) take(option);
  });
  // The search text is not a field of the form, so its events stay here.
  for (const type of ["input", "change"]) box.addEventListener(type, (event) => event.stopPropagation());
  hubId.addEventListener("input", close);
  plain.addEventListener("change", close); // also chosen by a link
  document.getElementById("id_config_file").addEventListener("change", () => setTimeout(close)); // form.js has chosen it
  window.addEventListener("pageshow", close); // going back restores the fields

  plain.hidden = true;
  box.hidden = false;
  close();
  if (plain.querySelector("[autofocus]")) input.focus();
})();
