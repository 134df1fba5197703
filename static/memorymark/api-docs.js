// The API's description, to read and to try; the session's CSRF token goes with what is tried.
"use strict";

const page = document.getElementById("api-docs");
const token = document.querySelector("#api-docs-token input").value;

SwaggerUIBundle({
  url: page.dataset.schema,
  dom_id: "#api-docs",
  presets: [SwaggerUIBundle.presets.apis],
  layout: "BaseLayout",
  deepLinking: true,
  defaultModelsExpandDepth: 0,
  docExpansion: "list",
  validatorUrl: null,
  requestInterceptor: (request) => {
    if (request.method && request.method !== "GET") {
      request.headers["X-CSRFToken"] = token;
    }
    return request;
  },
});
