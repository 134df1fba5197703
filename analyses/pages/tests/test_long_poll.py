"""A request that waits for a change is answered at once when there is one, and never for long."""

from __future__ import annotations

from itertools import count
from time import monotonic

import pytest

from analyses.pages import long_poll
from analyses.pages.long_poll import MAX_HELD, hear


@pytest.fixture(autouse=True)
def held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_poll, "HELD_SECONDS", 0.2)


def test_a_change_is_heard_of_while_the_request_is_held() -> None:
    asked = count()
    assert hear(lambda: next(asked) == 2)


def test_without_a_change_the_request_ends() -> None:
    begun = monotonic()
    assert not hear(lambda: False)
    assert monotonic() - begun >= 0.2


def test_a_request_beyond_the_most_is_not_held() -> None:
    taken = [long_poll._held.acquire(blocking=False) for _ in range(MAX_HELD)]
    try:
        assert all(taken)
        asked = count()
        assert not hear(lambda: next(asked) > 0)
        assert next(asked) == 1
    finally:
        long_poll._held.release(MAX_HELD)


def test_an_error_does_not_keep_a_place() -> None:
    def fail() -> bool:
        if next(asked):
            raise LookupError
        return False

    for _ in range(MAX_HELD + 1):
        asked = count()
        with pytest.raises(LookupError):
            hear(fail)
