"""Where everything is."""

from django.contrib import admin
from django.urls import include, path

from memorymark_site.health import health

urlpatterns = [
    path("", include("analyses.urls")),
    path("", include("memorymark_site.accounts.urls")),
    path("api/v1/health", health),
    path("api/v1/", include("analyses.api.urls")),
    path("health", health, name="health"),
    path("admin/", admin.site.urls),
]

handler400 = "memorymark_site.errors.bad_request"
handler404 = "memorymark_site.errors.not_found"
handler500 = "memorymark_site.errors.failed"
