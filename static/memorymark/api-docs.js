// Swagger UI with the API's description; requests tried on the page carry the session's CSRF token.
"use strict";

const root = document.documentElement;
const description = document.getElementById("api-docs");
const token = document.querySelector("#api-docs-token input").value;
const systemIsDark = matchMedia("(prefers-color-scheme: dark)");

// Swagger UI has its own dark colours behind this class.
function followTheme() {
  const theme = root.dataset.theme;
  const isDark = theme === "system" ? systemIsDark.matches : theme !== "light";
  root.classList.toggle("dark-mode", isDark);
}

followTheme();
new MutationObserver(followTheme).observe(root, { attributeFilter: ["data-theme"] });
systemIsDark.addEventListener("change", followTheme);

// Make examples scrollable by keyboard and label their select, which Swagger UI does not.
function putRight() {
  for (const example of description.querySelectorAll("pre.example:not([tabindex])")) {
    example.tabIndex = 0;
  }
  for (const choice of description.querySelectorAll("select.examples-select-element")) {
    choice.setAttribute("aria-label", "Example");
  }
}

new MutationObserver(putRight).observe(description, { childList: true, subtree: true });

SwaggerUIBundle({
  url: description.dataset.schema,
  dom_id: "#api-docs",
  presets: [SwaggerUIBundle.presets.apis],
  layout: "BaseLayout",
  defaultModelsExpandDepth: -1,
  docExpansion: "list",
  syntaxHighlight: false,
  validatorUrl: null,
  requestInterceptor: (request) => {
    if (request.method && request.method !== "GET") {
      request.headers["X-CSRFToken"] = token;
    }
    return request;
  },
});
