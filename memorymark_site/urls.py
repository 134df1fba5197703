"""Where everything is."""

from django.contrib import admin
from django.urls import include, path

from memorymark_site.health import health
from memorymark_site.operations.metrics.views import metrics

urlpatterns = [
    path("", include("analyses.urls")),
    path("", include("memorymark_site.accounts.urls")),
    path("api/v1/", include("analyses.api_urls")),
    path("api/v1/health", health),
    path("health", health, name="health"),
    path("metrics", metrics, name="metrics"),
    path("admin/", admin.site.urls),
]
