"""The app's place in Django."""

from django.apps import AppConfig


class OperationsConfig(AppConfig):
    """Commands and checks; no tables."""

    name = "memorymark_site.operations"
    label = "operations"

    def ready(self) -> None:
        """Register the checks."""
        from memorymark_site.operations import checks  # noqa: F401  # registers them
