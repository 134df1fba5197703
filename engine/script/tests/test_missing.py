"""Missing needs of a script on this machine: the error says how to get them."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.script.program import Program
from engine.script.tests.scripts import A10
from engine.script.trace import CannotTrace, trace_script

_TRAINING = """
import torch
from torch import nn

{before}
model = nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(6):
    loss = model(torch.randn(8, 64).cuda()).sum()
    loss.backward()
    optimizer.step()
    {after}
"""


def _program(folder: Path, before: str, after: str = "pass") -> Program:
    script = folder / "train.py"
    script.write_text(_TRAINING.format(before=before, after=after))
    return Program.of(script)


@pytest.mark.parametrize(
    "before",
    [
        "import urllib.request; urllib.request.urlopen('http://example.org/data.zip')",
        # Some keep only the words of an error, and some not even these
        """
try:
    import urllib.request; urllib.request.urlopen('http://example.org/data.zip')
except OSError as error:
    said = str(error)
raise RuntimeError('Error downloading data.zip: ' + said)""",
        "raise FileNotFoundError(\"Module 'x' doesn't exist on the Hugging Face Hub either.\")",
        "raise ConnectionError(\"Couldn't reach 'cifar10' on the Hub\") from None",
        "raise LookupError('Offline mode: run this script once to download data files')",
    ],
    ids=["itself", "its words", "not found", "not reached", "offline"],
)
def test_a_download_is_to_be_done_before(folder: Path, before: str) -> None:
    with pytest.raises(CannotTrace, match=r"fetch it once .* or run the script once") as refused:
        trace_script(_program(folder, before), 8, A10)
    assert "fix that" not in str(refused.value)


def test_a_package_that_is_not_installed_is_named(folder: Path) -> None:
    with pytest.raises(CannotTrace, match=r"line 5 .*: install no_such_package where memorymark"):
        trace_script(_program(folder, "import no_such_package.inner"), 8, A10)


@pytest.mark.parametrize("name", ["LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR"])
def test_variables_of_a_launcher_are_asked_for(folder: Path, name: str) -> None:
    with pytest.raises(CannotTrace, match=r"line 5 .*: say how many .* \(WORLD_SIZE=8 memorymark"):
        trace_script(_program(folder, f"import os; os.environ['{name}']"), 8, A10)
    with pytest.raises(CannotTrace, match="fix that"):
        trace_script(_program(folder, "import os; os.environ['OTHER']"), 8, A10)


def test_a_file_that_the_script_names_itself_is_its_own_fault(folder: Path) -> None:
    with pytest.raises(CannotTrace, match=r"FileNotFoundError: .*: fix that"):
        trace_script(_program(folder, "open('no_such_file.csv')"), 8, A10)


def test_an_error_says_what_it_came_of(folder: Path) -> None:
    before = """
try:
    int('seven')
except ValueError as error:
    raise RuntimeError('the data set could not be generated') from error"""
    says = r"RuntimeError: the data set .* came of ValueError: invalid literal .*'seven'"
    with pytest.raises(CannotTrace, match=says):
        trace_script(_program(folder, before), 8, A10)


def test_a_metric_that_would_be_downloaded_is_gone_without(folder: Path) -> None:
    """As in the examples of transformers, which load theirs before they train."""
    (folder / "evaluate.py").write_text(
        "def load(name):\n"
        '    raise FileNotFoundError(f"{name} doesn\'t exist on the Hugging Face Hub either.")\n'
    )
    program = _program(
        folder,
        "from evaluate import load\nmetric = load('accuracy')",
        "metric.add_batch(predictions=[1], references=[1]); print(metric.compute()['accuracy'])",
    )
    assert trace_script(program, 8, A10).peak_of_last_step()


def test_a_metric_that_fails_otherwise_is_an_error(folder: Path) -> None:
    (folder / "evaluate.py").write_text("def load(name):\n    raise OSError('disk full')\n")
    with pytest.raises(CannotTrace, match="disk full"):
        trace_script(_program(folder, "import evaluate\nevaluate.load('f1')"), 8, A10)
