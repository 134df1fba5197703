"""The app's place in Django."""

from django.apps import AppConfig


class AccountsConfig(AppConfig):
    """Members of the lab."""

    name = "memorymark_site.accounts"
    label = "accounts"
