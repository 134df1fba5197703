"""``/live`` and ``/ready``: for whoever starts, watches and routes to the site's processes.

``/live`` fails when a process has to be started again, ``/ready`` when it cannot serve right now.
Neither says anything of the workers: ``/health`` does. They answer without login, and no secrets.
"""

from __future__ import annotations

import logging
from functools import cache

from django import db
from django.contrib.auth.decorators import login_not_required
from django.db import connection
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder
from django.http import HttpRequest, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

logger = logging.getLogger(__name__)


@login_not_required
@never_cache
@require_safe
def live(_request: HttpRequest) -> JsonResponse:
    """200 whenever this process answers at all; it asks nobody."""
    return JsonResponse({"status": "ok"})


@login_not_required
@never_cache
@require_safe
def ready(_request: HttpRequest) -> JsonResponse:
    """200 if this process can serve pages: the database answers and is up to date; 503 if not."""
    try:
        missing = sorted(_migrations() - set(MigrationRecorder(connection).applied_migrations()))
    except db.Error:
        logger.exception("ready: the database does not answer")
        connection.close()
        return _not_ready("the database does not answer")
    if missing:
        count = len(missing)
        return _not_ready(f"{count} migrations are not applied; run: python manage.py migrate")
    return JsonResponse({"status": "ok", "problems": []})


def _not_ready(problem: str) -> JsonResponse:
    return JsonResponse({"status": "failing", "problems": [problem]}, status=503)


@cache
def _migrations() -> frozenset[tuple[str, str]]:
    """Those of this code; a database of a newer version has more, which does no harm."""
    return frozenset(MigrationLoader(None).disk_migrations)
