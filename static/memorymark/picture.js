// Saves a chart as a PNG at twice its size, so that it is sharp on slides.
"use strict";

(() => {
  const SCALE = 2;

  function save(picture, name) {
    const canvas = document.createElement("canvas");
    canvas.width = picture.naturalWidth * SCALE;
    canvas.height = picture.naturalHeight * SCALE;
    canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((blob) => {
      const link = document.createElement("a");
      link.href = URL.createObjectURL(blob);
      link.download = name;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000); // once the browser has started the download
    }, "image/png");
  }

  function offer() {
    for (const button of document.querySelectorAll("[data-picture]")) button.hidden = false;
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-picture]");
    if (button) save(document.getElementById(button.dataset.picture), button.dataset.name);
  });
  offer();
  document.addEventListener("htmx:afterSettle", offer); // the picture comes with the first answer
})();
