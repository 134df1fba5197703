"""What a log line is about: the request that is answered, the analysis that is worked on.

The request's id is stored with the analyses it submits; so the lines of the web process, of the
worker and of its engine on another machine are found by one id.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

LONGEST_REQUEST_ID = 64

_request_id: ContextVar[str] = ContextVar("request_id", default="")
_analysis_id: ContextVar[int | None] = ContextVar("analysis_id", default=None)


def request_id() -> str:
    """The id of the request that is answered, or that has submitted what is worked on."""
    return _request_id.get()


def analysis_id() -> int | None:
    """The number of the analysis that is worked on."""
    return _analysis_id.get()


@contextmanager
def of_request(identifier: str) -> Iterator[None]:
    """What is logged within is about this request."""
    token = _request_id.set(identifier)
    try:
        yield
    finally:
        _request_id.reset(token)


@contextmanager
def of_analysis(number: int, identifier: str) -> Iterator[None]:
    """What is logged within is about this analysis, and the request that has submitted it."""
    token = _analysis_id.set(number)
    try:
        with of_request(identifier):
            yield
    finally:
        _analysis_id.reset(token)
