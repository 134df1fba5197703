"""Libraries that a script names are imported before its traces are forked, as it would see them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.core.errors import EngineError
from engine.gpus import GPUS
from engine.script.process import preloading
from engine.script.program import Program
from engine.script.tests.scripts import A10
from engine.script.tests.test_program_traced import loop
from engine.script.trace import found_loaders, trace_script

LIBRARY = """
import os
import torch
from safetensors.torch import save_file

print("loaded")
process = os.getpid()
gpu = torch.cuda.is_available() and torch.cuda.get_device_name()
offline = os.environ.get("HF_HUB_OFFLINE")
"""


@pytest.fixture(autouse=True)
def library(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """A library that is installed, and takes long to import as it were."""
    installed = tmp_path_factory.mktemp("installed")
    (installed / "heavy").mkdir()
    (installed / "heavy" / "__init__.py").write_text(LIBRARY)
    (installed / "heavy" / "broken.py").write_text("raise SystemExit('no such GPU')")
    monkeypatch.syspath_prepend(installed)
    monkeypatch.setattr(preloading, "LIBRARIES", {"heavy", "absent"})
    yield installed / "heavy"
    for name in [name for name in sys.modules if name.partition(".")[0] == "heavy"]:
        del sys.modules[name]


def test_a_library_is_imported_once_as_the_script_sees_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = f"import heavy; assert heavy.process == {os.getpid()}"
    trace_script(loop(tmp_path, before=before), 4, A10, GPUS["l4"])
    heavy = sys.modules["heavy"]
    assert heavy.gpu == GPUS["l4"].display_name
    assert heavy.offline == "1"
    assert capfd.readouterr() == ("", "")


def test_names_are_asked_for_too(tmp_path: Path, library: Path) -> None:
    """``from transformers import Trainer`` loads most of it at the second word."""
    program = loop(tmp_path, before="from heavy import broken, LATER")
    later = "\ndef __getattr__(name):\n    ASKED.append(name)\n    raise AttributeError\nASKED = []"
    (library / "__init__.py").write_text(LIBRARY + later)
    preloading.preload(program, A10, None)
    assert "LATER" in sys.modules["heavy"].ASKED


def test_to_find_the_loaders_it_is_imported_too(tmp_path: Path) -> None:
    found_loaders(loop(tmp_path, before="import heavy", flag=None), A10)
    assert "heavy" in sys.modules


def test_what_the_script_does_not_name_is_left_alone(tmp_path: Path) -> None:
    trace_script(loop(tmp_path), 4, A10)
    assert "heavy" not in sys.modules


def test_without_a_gpu_each_trace_imports_it_by_itself(tmp_path: Path) -> None:
    trace_script(loop(tmp_path, before="import heavy; assert not heavy.gpu"), 4, None)
    assert "heavy" not in sys.modules


@pytest.mark.parametrize("beside", ["heavy.py", "heavy/__init__.py"])
def test_a_module_of_the_scripts_own_goes_first(tmp_path: Path, beside: str) -> None:
    own = tmp_path / beside
    own.parent.mkdir(exist_ok=True)
    own.write_text("OWN = True")
    trace_script(loop(tmp_path, before="import heavy; heavy.OWN"), 4, A10)
    assert "heavy" not in sys.modules


@pytest.mark.parametrize(
    ("line", "says"),
    [("import absent", "No module named 'absent'"), ("import heavy.broken", "no such GPU")],
)
def test_what_cannot_be_imported_fails_with_the_scripts_own_line(
    tmp_path: Path, line: str, says: str
) -> None:
    with pytest.raises(EngineError, match=rf"at train\.py, line 14 \({line}\): .*{says}"):
        trace_script(loop(tmp_path, before=line), 4, A10)


def test_a_script_that_is_no_python_tells_it_itself(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("import heavy\nfor")
    with pytest.raises(EngineError, match="SyntaxError"):
        trace_script(Program.of(path), 4, A10)


def test_functions_that_write_are_switched_off_where_it_took_them(tmp_path: Path) -> None:
    file = tmp_path / "weights.safetensors"
    write = f"heavy.save_file({{'x': torch.ones(2).cpu()}}, {str(file)!r})"
    trace_script(loop(tmp_path, write, before="import heavy"), 4, A10)
    assert not file.exists()
