"""Addresses of the account pages."""

from django.contrib.auth.views import LogoutView
from django.urls import path

from memorymark_site.accounts.roles import Role, needs
from memorymark_site.accounts.views import LoginView, setup

app_name = "accounts"
urlpatterns = [
    path("accounts/login/", LoginView.as_view(), name="login"),
    path("accounts/logout/", needs(Role.VIEWER)(LogoutView.as_view()), name="logout"),
    path("setup/<str:token>/", setup, name="setup"),
]
