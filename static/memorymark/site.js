// Needed on every page: running times, the theme switch, buttons that need JavaScript.
"use strict";

(() => {
  // Elapsed times. The server gives the time elapsed when it rendered the page; we count from there,
  // so a wrong local clock does not matter.
  const started = new WeakMap();

  function words(seconds) {
    if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
    const total = Math.round(seconds);
    if (total < 60) return `${total} s`;
    const minutes = Math.floor(total / 60);
    const two = (number) => String(number).padStart(2, "0");
    if (minutes < 60) return `${minutes} min ${two(total % 60)} s`;
    return `${Math.floor(minutes / 60)} h ${two(minutes % 60)} min`;
  }

  function tick() {
    const now = performance.now() / 1000;
    for (const element of document.querySelectorAll("[data-elapsed]")) {
      if (!started.has(element)) started.set(element, now - Number(element.dataset.elapsed));
      element.textContent = words(now - started.get(element));
    }
  }

  // What is left of a stage, counted down from what the server said; nothing once that has passed.
  function about(seconds) {
    if (seconds <= 0) return "";
    if (seconds > 90) return `about ${Math.round(seconds / 60)} min left`;
    return `about ${Math.max(1, Math.ceil(seconds / 5)) * 5} s left`;
  }

  function countDown() {
    const now = performance.now() / 1000;
    for (const element of document.querySelectorAll("[data-left]")) {
      if (!started.has(element)) started.set(element, now);
      element.textContent = about(Number(element.dataset.left) - (now - started.get(element)));
    }
  }

  for (const button of document.querySelectorAll("[data-print]")) {
    button.hidden = false;
    button.addEventListener("click", () => window.print());
  }

  // A button beside a choice shows once the choice has changed.
  for (const form of document.querySelectorAll("[data-when-changed]")) {
    const button = form.querySelector("button");
    button.hidden = true;
    form.addEventListener("change", () => { button.hidden = false; });
  }

  tick();
  setInterval(tick, 500);
  setInterval(countDown, 500);

  // The form that form.js keeps is for the way through sign-in only.
  if (!/^\/(new|account)/.test(location.pathname)) sessionStorage.removeItem("memorymark-form");

  // On a phone the navigation is wider than the window: scroll to the current page's link.
  const nav = document.querySelector(".site-header nav");
  const here = nav?.querySelector("[aria-current]");
  if (here) {
    nav.scrollLeft = here.offsetLeft - nav.offsetLeft - (nav.clientWidth - here.offsetWidth) / 2;
  }

  // The theme is a cookie, so that the server renders it and nothing flashes.
  const choice = document.querySelector("[data-theme-choice]");
  if (choice) {
    const root = document.documentElement;
    choice.closest("[hidden]").hidden = false;
    choice.value = root.dataset.theme;
    choice.addEventListener("change", () => {
      document.cookie = `theme=${choice.value}; path=/; max-age=31536000; samesite=lax`;
      root.dataset.theme = choice.value;
      document.dispatchEvent(new Event("themechange"));
    });
  }
})();
