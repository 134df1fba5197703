"""Addresses of the pages, mounted at the site's root."""

from django.urls import path

from analyses import views

app_name = "analyses"

urlpatterns = [
    path("", views.history, name="list"),
    path("gpus/", views.gpus, name="gpus"),
    path("new/", views.new, name="new"),
    path("<int:pk>/", views.detail, name="detail"),
    path("<int:pk>/cancel/", views.cancel, name="cancel"),
    path("<int:pk>/live/", views.live, name="live"),
    path("<int:pk>/log/", views.log, name="log"),
]
