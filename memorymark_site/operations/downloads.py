"""Long downloads, of which only a few run at once: the rest of the site has to go on.

Each holds a thread of the site for as long as its reader takes. A running one holds the lock of a
file, which all processes of this machine see, and which the system releases however the process
ends; a row in the database or a cache would outlive it. If several machines serve the site, each
counts for itself. A reader may take hours, so while it reads no transaction and no cursor is open:
on PostgreSQL they would hold up vacuum and migrations.
"""

from __future__ import annotations

import fcntl
import logging
from array import array
from collections.abc import Iterable, Iterator
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import IO, Any, TypeVar

from django.conf import settings
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse

from memorymark_site.operations.error_pages import error_page

logger = logging.getLogger(__name__)

RETRY_SECONDS = 10
_IDS_READ = 10_000
"""Ids that the database sends at a time."""

Row = TypeVar("Row", bound=Model)


def download(
    request: HttpRequest, pieces: Iterable[str], *, kind: str, name: str
) -> HttpResponseBase:
    """Stream a file, or refuse with 503 if too many downloads are running.

    Args:
        request: The request for it.
        pieces: Its text.
        kind: Its content type.
        name: File name that browsers save it as.
    """
    try:
        place = _free_place()
    except OSError:  # a full disk should not end downloads
        logger.exception("downloads cannot be counted")
        place = None
    else:
        if place is None and settings.DOWNLOADS_AT_ONCE:
            return refusal(request)
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingHttpResponse(_Held(pieces, place), content_type=kind, headers=headers)


def rows_in_order(found: QuerySet[Row], chunk: int) -> Iterator[Row]:
    """The rows of a query for a download, in its order.

    Args:
        found: The query; rows that no longer match when their turn comes are left out.
        chunk: Number of rows to read at a time.
    """
    for ids in ids_in_order(found, chunk):
        rows = found.order_by().in_bulk(ids)
        yield from (rows[pk] for pk in ids if pk in rows)


def ids_in_order(found: QuerySet[Any], chunk: int) -> Iterator[list[int]]:
    """The ids that a query finds, in its order, each once and ``chunk`` at a time.

    The first chunk is found by itself, so that a download starts at once; then all ids are read in
    one go and kept, in 8 bytes each.
    """
    ids = found.values_list("pk", flat=True)
    first = list(ids[:chunk])
    yield first
    if len(first) == chunk:
        sent = set(first)
        rest = array("q", (pk for pk in ids.iterator(_IDS_READ) if pk not in sent))
        for start in range(0, len(rest), chunk):
            yield rest[start : start + chunk].tolist()


class _Held:
    """The pieces of a download, which gives its place back at the end, or when it is closed."""

    def __init__(self, pieces: Iterable[str], place: IO[bytes] | None) -> None:
        self._pieces, self._place = iter(pieces), place

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        try:
            return next(self._pieces)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Called by Django once the response is sent or given up."""
        if self._place is not None:
            self._place.close()  # with the lock


def _free_place() -> IO[bytes] | None:
    """A locked file; ``None`` if all are locked."""
    folder = Path(settings.DATA_DIR) / "downloads"
    folder.mkdir(mode=0o700, exist_ok=True)
    for number in range(settings.DOWNLOADS_AT_ONCE):
        place = (folder / str(number)).open("wb")
        with suppress(BlockingIOError):
            fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return place
        place.close()
    return None


def refusal(request: HttpRequest) -> HttpResponse:
    """The page that says when to try again."""
    most = settings.DOWNLOADS_AT_ONCE
    return error_page(
        request,
        HTTPStatus.SERVICE_UNAVAILABLE,
        heading="Too many downloads at once",
        why=f"The site sends {most} at a time, and that many are running.",
        retry_seconds=RETRY_SECONDS,
    )
