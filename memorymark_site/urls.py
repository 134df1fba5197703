"""The site's URLs."""

from django.contrib import admin
from django.urls import include, path

from analyses.api import first_service, schema
from analyses.api.nodes import Health, health
from memorymark_site.accounts.pages.entrance import admin_login, admin_password
from memorymark_site.operations.prometheus import metrics
from memorymark_site.probes import live, ready

urlpatterns = [
    path("", include("analyses.urls")),
    path("", include("memorymark_site.accounts.urls")),
    path("api/v1/health", Health.as_view()),
    path("api/v1/", include("analyses.api.urls")),
    path("api/docs/", schema.docs, name="api-docs"),
    path("api/docs/problems/", schema.problems, name="api-problems"),
    path("health", health, name="health"),
    path("models", first_service.Models.as_view(), name="first-models"),
    path("analyze", first_service.Analyze.as_view(), name="first-analyze"),
    path("live", live, name="live"),
    path("ready", ready, name="ready"),
    path("metrics", metrics, name="metrics"),
    path("admin/login/", admin_login),
    path("admin/password_change/", admin_password),
    path("admin/", admin.site.urls),
]

handler400 = "analyses.api.problems.bad_request"
handler404 = "analyses.api.problems.not_found"
handler500 = "analyses.api.problems.failed"
