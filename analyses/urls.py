"""Addresses of the pages, mounted at the site's root."""

from django.urls import path

from analyses import views
from analyses.compare import views as compare
from analyses.notifications import views as notifications

app_name = "analyses"

urlpatterns = [
    path("", views.history, name="list"),
    path("compare/", compare.compare, name="compare"),
    path("compare/bars.svg", compare.bars, name="compare-bars"),
    path("gpus/", views.gpus, name="gpus"),
    path("new/", views.new, name="new"),
    path("notifications/", notifications.choose, name="notifications"),
    path("notifications/secret/", notifications.renew_secret, name="notifications-secret"),
    path("notifications/test/", notifications.send_test, name="notifications-test"),
    path("<int:pk>/", views.detail, name="detail"),
    path("<int:pk>/cancel/", views.cancel, name="cancel"),
    path("<int:pk>/live/", views.live, name="live"),
    path("<int:pk>/log/", views.log, name="log"),
]
