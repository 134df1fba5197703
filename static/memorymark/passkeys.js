// Passkey errors, shown in [data-passkey-error], and the buttons that need a script.
"use strict";

(() => {
  for (const button of document.querySelectorAll("[data-passkey]")) button.hidden = false;

  const WORDS = {
    InvalidStateError: "This device already has a passkey for your account.",
    NotAllowedError: "No passkey was provided, or it took too long.",
    SecurityError: "The browser does not allow passkeys at this address.",
  };

  document.addEventListener("allauth.error", (event) => {
    const place = document.querySelector("[data-passkey-error]");
    if (!place) return;
    event.preventDefault(); // or it only goes to the console
    const error = event.detail.exception;
    place.textContent = WORDS[error.name] ?? `Something went wrong: ${error.message ?? error}`;
    place.hidden = false;
  });
})();
