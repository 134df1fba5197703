// What can go wrong with a passkey, told where [data-passkey-error] is, and buttons that need a script.
"use strict";

(() => {
  for (const button of document.querySelectorAll("[data-passkey]")) button.hidden = false;

  const WORDS = {
    InvalidStateError: "This device has a passkey for your account already.",
    NotAllowedError: "The browser has stopped: no passkey was given, or it took too long.",
    SecurityError: "The browser takes no passkeys at this address.",
  };

  document.addEventListener("allauth.error", (event) => {
    const place = document.querySelector("[data-passkey-error]");
    if (!place) return;
    event.preventDefault(); // or it goes to the console alone
    const error = event.detail.exception;
    place.textContent = WORDS[error.name] ?? `That did not work: ${error.message ?? error}`;
    place.hidden = false;
  });
})();
