"""The app's place in Django, and what a worker process does when it starts."""

from django.apps import AppConfig


class AnalysesConfig(AppConfig):
    """Analyses: the question, the worker that answers it, the pages and the API."""

    name = "analyses"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Be told when the cluster starts a worker process."""
        from django_q.signals import post_spawn

        post_spawn.connect(_worker_started, dispatch_uid="analyses.worker_started")


def _worker_started(**_kwargs: object) -> None:
    """In a fresh worker process: be stoppable, end with the node, and have an engine ready."""
    from analyses import bound_process, worker

    bound_process.end_with_node_process()
    worker.start()
