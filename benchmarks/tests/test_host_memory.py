"""The rules of host memory are held against processes that load and save."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from benchmarks.host_memory import CASES, Watch, measure, write_models

MIB = 2**20


@pytest.mark.longer
def test_a_watch_sees_what_was_held_and_freed_meanwhile() -> None:
    with Watch(counts_pages=False) as watch:
        held = bytearray(64 * MIB)
        held[::4096] = bytes(len(held[::4096]))  # touch each page
        time.sleep(0.3)  # the watch looks now and then, less often on a busy machine
        del held
    assert watch.bytes == pytest.approx(64 * MIB, rel=0.1)


@pytest.mark.slow
@pytest.mark.torch
def test_rules_are_right_about_real_processes(tmp_path: Path) -> None:
    write_models(tmp_path)
    for key in ("converted", "gathered"):
        case = CASES[key]
        measured = measure(key, case, tmp_path)
        assert case.predicted() == pytest.approx(measured, rel=0.15)
