"""How gunicorn serves the site; ``make run`` gives HOST and PORT."""

import os
import shutil
import tempfile

from gunicorn.arbiter import Arbiter
from gunicorn.workers.base import Worker

from memorymark_site.operations.logs.config import LINES, logging_config
from memorymark_site.operations.logs.redaction import secrets_of

_HOST = os.environ.get("HOST", "127.0.0.1")
_PORT = os.environ.get("PORT", "8000")

bind = f"[{_HOST}]:{_PORT}" if ":" in _HOST else f"{_HOST}:{_PORT}"
workers = 2
threads = 4
worker_class = "memorymark_site.slow_clients.Worker"
loglevel = "warning"
logconfig_dict = logging_config(
    os.environ.get("LOG_LEVEL", "WARNING").upper(),
    os.environ.get("LOG_FORMAT", LINES).lower(),
    secrets_of(os.environ),
)
timeout = 60
graceful_timeout = 3
# No header says what the path is; whether it was https, Django reads where MEMORYMARK_HTTPS is set.
forwarded_allow_ips = ""

_METRICS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
if os.environ.get("MEMORYMARK_METRICS_TOKEN"):
    # The processes count requests in files here; see memorymark_site.operations.metrics.requests.
    os.environ.setdefault(_METRICS_FOLDER, tempfile.mkdtemp(prefix="memorymark-metrics-"))


def on_exit(_server: Arbiter) -> None:
    """Removes what was counted: the next start counts from zero, as Prometheus expects."""
    if _METRICS_FOLDER in os.environ:
        shutil.rmtree(os.environ[_METRICS_FOLDER], ignore_errors=True)


def post_worker_init(worker: Worker) -> None:
    """Greets the person at the terminal once, when the first worker can answer."""
    if worker.age == 1:
        from django.core.management import call_command

        call_command("welcome", address=f"http://{_address()}")


def _address() -> str:
    """Where a browser on this machine finds the site."""
    everywhere = _HOST in ("0.0.0.0", "::")  # noqa: S104  # compared with, not listened on
    return f"localhost:{_PORT}" if everywhere else bind
