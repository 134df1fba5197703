"""Where everything is."""

from django.contrib import admin
from django.urls import include, path

from analyses.api import docs
from memorymark_site.accounts.views import admin_login, admin_password
from memorymark_site.health import Health, health
from memorymark_site.operations.metrics.views import metrics
from memorymark_site.probes import live, ready

urlpatterns = [
    path("", include("analyses.urls")),
    path("", include("memorymark_site.accounts.urls")),
    path("", include("memorymark_site.accounts.entrance_urls")),
    path("api/v1/health", Health.as_view()),
    path("api/v1/", include("analyses.api.urls")),
    path("api/docs/", docs.docs, name="api-docs"),
    path("api/docs/problems/", docs.problems, name="api-problems"),
    path("health", health, name="health"),
    path("live", live, name="live"),
    path("ready", ready, name="ready"),
    path("metrics", metrics, name="metrics"),
    path("admin/login/", admin_login),
    path("admin/password_change/", admin_password),
    path("admin/", admin.site.urls),
]

handler400 = "memorymark_site.errors.bad_request"
handler404 = "memorymark_site.errors.not_found"
handler500 = "memorymark_site.errors.failed"
