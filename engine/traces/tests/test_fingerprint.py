from __future__ import annotations

from pathlib import Path

import pytest

from engine.core.process import CALIBRATION_VARIABLE
from engine.traces import fingerprint


def test_the_fingerprint_is_stable() -> None:
    assert fingerprint.fingerprint() == fingerprint.fingerprint()


def test_your_own_calibration_changes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = fingerprint.fingerprint()
    own = tmp_path / "calibration.toml"
    own.write_text("")
    monkeypatch.setenv(CALIBRATION_VARIABLE, str(own))
    assert fingerprint.fingerprint() != before


def test_another_torch_changes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    before = fingerprint.fingerprint()
    monkeypatch.setattr(fingerprint, "version", lambda package: "99.0")
    assert fingerprint.fingerprint() != before
