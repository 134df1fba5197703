"""Engines load in turn, and none with an order waits."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from engine.core.loading import turn


class Orders:
    """The pipe to an engine."""

    def __init__(self) -> None:
        reading, self._writing = os.pipe()
        self.read_by_engine: IO[str] = os.fdopen(reading, encoding="utf-8")

    def send(self) -> None:
        """Write an order."""
        os.write(self._writing, b"{}\n")

    def close(self) -> None:
        """Close both ends."""
        os.close(self._writing)
        self.read_by_engine.close()


class Loading:
    """An engine that has begun to load once it has its turn, on a thread."""

    def __init__(self, folder: Path | None, most: int | None) -> None:
        self.orders = Orders()
        self.has_turn, self._end = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._load, args=(folder, most))
        self._thread.start()

    def end(self) -> None:
        """Be done with loading."""
        self._end.set()
        self._thread.join(timeout=30)

    def _load(self, folder: Path | None, most: int | None) -> None:
        with turn(folder, self.orders.read_by_engine, most):
            self.has_turn.set()
            self._end.wait(30)


class Engines:
    """Engines of one machine.

    Attributes:
        folder: The folder that they share.
    """

    def __init__(self, folder: Path) -> None:
        self.folder: Path | None = folder
        self._started: list[Loading] = []

    def start(self, most: int | None = 1) -> Loading:
        """Start one more."""
        self._started.append(Loading(self.folder, most))
        return self._started[-1]

    def close(self) -> None:
        """End all."""
        for each in self._started:
            each.orders.send()
            each.end()
            each.orders.close()


@pytest.fixture
def engines(tmp_path: Path) -> Iterator[Engines]:
    made = Engines(tmp_path / "traces")
    yield made
    made.close()


def test_one_loads_after_another(engines: Engines) -> None:
    first = engines.start()
    assert first.has_turn.wait(10)
    second = engines.start()
    assert not second.has_turn.wait(0.3)
    first.end()
    assert second.has_turn.wait(10)


@pytest.mark.parametrize("most", [2, 3])
def test_as_many_load_together_as_may(engines: Engines, most: int) -> None:
    together = [engines.start(most) for _ in range(most)]
    assert all(each.has_turn.wait(10) for each in together)
    assert not engines.start(most).has_turn.wait(0.3)


def test_an_engine_with_an_order_does_not_wait(engines: Engines) -> None:
    assert engines.start().has_turn.wait(10)
    second, third = engines.start(), engines.start()
    third.orders.send()
    assert third.has_turn.wait(10)
    assert not second.has_turn.is_set()


def test_engines_that_share_no_folder_do_not_wait(engines: Engines) -> None:
    engines.folder = None
    assert all(engines.start().has_turn.wait(10) for _ in range(2))


def test_engines_that_may_not_write_do_not_wait(engines: Engines, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    engines.folder = tmp_path / "file" / "traces"
    assert all(engines.start().has_turn.wait(10) for _ in range(2))


def test_one_may_always_load(engines: Engines, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.core.loading.processors", lambda: 1)
    assert engines.start(most=None).has_turn.wait(10)
