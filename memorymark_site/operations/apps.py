"""The app's place in Django."""

from django.apps import AppConfig


class OperationsConfig(AppConfig):
    """Running the site: commands and checks; it has no tables."""

    name = "memorymark_site.operations"
    label = "operations"

    def ready(self) -> None:
        """Have the settings checked."""
        from memorymark_site.operations import checks  # noqa: F401  # registers them
