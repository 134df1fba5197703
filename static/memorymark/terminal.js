// The terminal follows the end of the log while lines arrive, until you scroll up.
"use strict";

(() => {
  const NEAR = 4; // pixels; with zoom, the end is not at a whole pixel
  const terminal = document.getElementById("terminal");
  if (!terminal) return;
  const follow = document.getElementById("terminal-follow"); // only while lines may arrive

  const toEnd = () => { terminal.scrollTop = terminal.scrollHeight; };
  const isAtEnd = () => terminal.scrollHeight - terminal.clientHeight - terminal.scrollTop <= NEAR;

  toEnd();
  terminal.closest("details").addEventListener("toggle", toEnd, { once: !follow });
  if (!follow) return;

  follow.closest("[hidden]").hidden = false;
  follow.addEventListener("change", () => { if (follow.checked) toEnd(); });
  terminal.addEventListener("scroll", () => { follow.checked = isAtEnd(); });
  new MutationObserver(() => { if (follow.checked) toEnd(); }).observe(
    terminal, { childList: true, subtree: true },
  );
})();
