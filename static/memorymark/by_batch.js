// The slider of the picture of memory and speed: shows the figures of one batch size, or length, after another.
"use strict";

(() => {
  function show(picture, index) {
    const script = document.getElementById(picture.dataset.picturePoints);
    const point = JSON.parse(script.textContent)[index];
    const slider = picture.querySelector("[data-slider]");
    slider.value = index;
    slider.setAttribute("aria-valuetext", `${slider.dataset.slider} ${point.at}: ${point.fit}, ${point.used}`);
    for (const element of picture.querySelectorAll("[data-reading]")) {
      element.textContent = point[element.dataset.reading];
    }
    for (const element of picture.querySelectorAll("[data-size]")) {
      element.textContent = point.sizes[element.dataset.size];
    }
    for (const bar of picture.querySelectorAll("[data-index]")) {
      bar.classList.toggle("picture-here", bar.dataset.index === String(index));
    }
  }

  function reveal() {
    for (const slider of document.querySelectorAll("[data-slider]")) slider.hidden = false;
  }

  document.addEventListener("input", (event) => {
    if (!event.target.matches("[data-slider]")) return;
    show(event.target.closest("[data-picture-points]"), Number(event.target.value));
  });
  // The figures of the size that is pointed at, at any height of the picture.
  function point(event) {
    const bar = event.target.closest("[data-index]");
    const picture = bar?.closest("[data-picture-points]");
    if (picture) show(picture, Number(bar.dataset.index));
  }
  document.addEventListener("pointerover", point);
  document.addEventListener("click", point);
  document.addEventListener("htmx:afterSettle", reveal);
  reveal();
})();
