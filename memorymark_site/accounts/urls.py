"""Addresses of the account pages."""

from django.contrib.auth.views import LogoutView
from django.urls import path

from memorymark_site.accounts import token_views
from memorymark_site.accounts.views import LoginView, setup

app_name = "accounts"
urlpatterns = [
    path("accounts/login/", LoginView.as_view(), name="login"),
    path("accounts/logout/", LogoutView.as_view(), name="logout"),
    path("tokens/", token_views.tokens_page, name="tokens"),
    path("tokens/<str:token_key>/revoke/", token_views.revoke, name="revoke-token"),
    path("setup/<str:token>/", setup, name="setup"),
]
