"""``/live`` and ``/ready``, for what starts, watches and routes to the site's processes.

``/live`` fails if the process has to be restarted, ``/ready`` if it cannot serve right now. Neither
concerns the workers: ``/health`` does. They need no login and have no secrets.
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
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_safe

from memorymark_site.environment import MANAGE
from memorymark_site.operations.database import need_response

logger = logging.getLogger(__name__)


@csrf_exempt  # it changes nothing: another method is a 405, not a form that has expired
@login_not_required
@never_cache
@require_safe
def live(_request: HttpRequest) -> JsonResponse:
    """200 whenever this process responds at all; it depends on nothing else."""
    return JsonResponse({"status": "ok"})


@csrf_exempt  # it changes nothing: another method is a 405, not a form that has expired
@login_not_required
@never_cache
@require_safe
def ready(_request: HttpRequest) -> JsonResponse:
    """200 if this process can serve pages: the database responds and is up to date; else 503."""
    try:
        need_response(connection)
        missing = sorted(_migrations() - set(MigrationRecorder(connection).applied_migrations()))
    except db.Error:
        logger.exception("ready: the database does not respond")
        connection.close()
        return _not_ready("the database does not respond")
    if missing:
        count = len(missing)
        return _not_ready(f"{count} migrations are not applied; run: {MANAGE} migrate")
    return JsonResponse({"status": "ok", "problems": []})


def _not_ready(problem: str) -> JsonResponse:
    return JsonResponse({"status": "failing", "problems": [problem]}, status=503)


@cache
def _migrations() -> frozenset[tuple[str, str]]:
    """The migrations of this code; a database of a newer version may have more."""
    return frozenset(MigrationLoader(None).disk_migrations)
