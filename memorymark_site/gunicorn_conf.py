"""gunicorn's configuration to serve the site; ``make run`` gives HOST and PORT."""

import os
import shutil
import tempfile

from gunicorn.arbiter import Arbiter
from gunicorn.workers.base import Worker

from memorymark_site.environment import read_or_exit
from memorymark_site.operations.log import logging_config
from memorymark_site.operations.redaction import secrets_of

_env = read_or_exit(os.environ)

bind = f"[{_env.host}]:{_env.port}" if ":" in _env.host else f"{_env.host}:{_env.port}"
workers = _env.web_processes or min(max(os.cpu_count() or 1, 2), 8)
threads = _env.web_threads
worker_class = "memorymark_site.slow_clients.Worker"
loglevel = "warning"
logconfig_dict = logging_config(
    _env.log_level,
    _env.log_format,
    secrets_of(os.environ),
)
timeout = 60
graceful_timeout = 3
# Longer than a proxy keeps an idle connection (60 s in docs/operations.md); else the site closes
# one just when the proxy sends a request on it. An idle connection holds no thread.
keepalive = 75
# No header may set the path; Django reads the scheme where MEMORYMARK_HTTPS is set.
forwarded_allow_ips = ""

_METRICS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
if _env.metrics_token:
    # The processes count requests in files here; see memorymark_site.operations.prometheus.
    os.environ.setdefault(_METRICS_FOLDER, tempfile.mkdtemp(prefix="memorymark-metrics-"))


def on_exit(_server: Arbiter) -> None:
    """Remove the counts: the next start counts from zero, as Prometheus expects."""
    if _METRICS_FOLDER in os.environ:
        shutil.rmtree(os.environ[_METRICS_FOLDER], ignore_errors=True)


def post_worker_init(worker: Worker) -> None:
    """Greet the person at the terminal once the first worker can answer."""
    if worker.age == 1:
        from django.core.management import call_command

        call_command("welcome", address=f"http://{_address()}")


def _address() -> str:
    """The site's address for a browser on this machine."""
    everywhere = _env.host in ("0.0.0.0", "::")  # noqa: S104  # nosec  # compared with, not listened on
    return f"localhost:{_env.port}" if everywhere else bind
