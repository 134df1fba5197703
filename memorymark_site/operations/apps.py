"""The app's place in Django."""

from django.apps import AppConfig


class OperationsConfig(AppConfig):
    """Running the site: commands and checks, no tables."""

    name = "memorymark_site.operations"
    label = "operations"
