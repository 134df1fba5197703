from __future__ import annotations

from importlib.metadata import version
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


@pytest.mark.parametrize("package", ["torch", "transformers", "peft", "diffusers", "timm"])
def test_another_release_of_what_is_traced_changes_it(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = fingerprint.fingerprint()
    monkeypatch.setattr(
        fingerprint, "version", lambda name: "99.0" if name == package else version(name)
    )
    assert fingerprint.fingerprint() != before
