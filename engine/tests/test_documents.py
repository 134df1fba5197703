"""README and docs are true: the files they name exist, and the example is real output."""

from __future__ import annotations

import re
import shlex
from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks.results.documents import ROOT, documents
from engine.allocator.pools import BLOCK_BYTES
from engine.answer.economics import FILLED_NOISE, UNFILLED_NOISE, coverage, unfilled_noise
from engine.answer.recommendation import ENOUGH_SPEED
from engine.answer.worth import SURELY_ABOVE, WORTH_MEASURED, WORTH_PREDICTED
from engine.cli.main import _parsed
from engine.cli.tests.documented import assert_prints
from engine.interface.assumptions import Assumptions
from engine.parallel.interconnect import NCCL_GROUP_BYTES, NCCL_PAIR_BYTES
from engine.prediction.timing.intervals import (
    ASSUMED_MEMORY,
    MIN_MEMORY_SHARE,
    PUBLISHED,
    range_of,
    read_residuals,
)
from engine.prediction.timing.speed_model import speed_model

README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("document", documents(), ids=lambda path: path.name)
def test_files_and_modules_named_in_a_document_exist(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    files = re.findall(r"`(engine/[\w./-]+|(?:analyses|memorymark_site|docs)/[\w/-]+\.\w+)`", text)
    assert [name for name in files if not (ROOT / name).exists()] == []
    linked = re.findall(r"\]\(((?!https?:)[^)#]+)", text)
    assert [name for name in linked if not (document.parent / name).exists()] == []
    modules = set(re.findall(r"python -m ((?:analyses|memorymark_site)[\w.]*)", text))
    imported = re.findall(r"^(?:from|import) memorymark([\w.]*)", text, re.MULTILINE)
    modules |= {f"engine{name}" for name in imported}
    assert [name for name in sorted(modules) if find_spec(name) is None] == []


@pytest.mark.parametrize("document", documents(), ids=lambda path: path.name)
def test_a_document_names_what_is_installed_and_shows_commands_that_exist(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    assert not re.findall(
        r"PYTHONPATH|python -m engine|^(?:from|import) engine", text, re.MULTILINE
    )
    for command in re.findall(r"^(?:\$ | *- run: )?memorymark (.*)$", text, re.MULTILINE):
        _parsed(shlex.split(command, comments=True))


def test_headings_in_links_exist() -> None:
    headings = {
        document.name: [
            re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-")
            for heading in re.findall(r"^#+ (.*)$", document.read_text("utf-8"), re.MULTILINE)
        ]
        for document in (*documents(), ROOT / "SECURITY.md")
    }
    for document in documents():
        for name, heading in re.findall(
            r"\]\(([\w./-]+\.md)#([\w-]+)\)", document.read_text("utf-8")
        ):
            assert heading in headings[Path(name).name], f"{document.name}: {name}#{heading}"


def test_the_methods_page_has_the_engines_constants() -> None:
    text = " ".join((ROOT / "docs" / "methods.md").read_text(encoding="utf-8").split())
    known = range_of(read_residuals(PUBLISHED), MIN_MEMORY_SHARE, ASSUMED_MEMORY)
    use = Assumptions()
    for claim in (
        f"at least {100 * MIN_MEMORY_SHARE:.0f}%, times",
        f"so it is ±{100 * (known.high - 1):.0f}%",
        f"**k** ({1e6 * speed_model().kernel_seconds:.0f} µs)",
        f"*assumed*: {1e6 * speed_model().host_seconds:.0f} µs",
        f"at least {100 * (WORTH_PREDICTED - 1):.0f}% faster in the middle of its interval and "
        f"more than {100 * (SURELY_ABOVE - 1):.0f}% at its low end",
        f"at least {100 * (WORTH_MEASURED - 1):.0f}% faster where it was measured",
        f"with {100 * ENOUGH_SPEED:.0f}% of the best speed",
        f"±{100 * FILLED_NOISE:.0f}% where both batches fill the GPU, ±{100 * UNFILLED_NOISE:.0f}%",
        f"±{100 * unfilled_noise(2):.0f}% at 2×, ±{100 * unfilled_noise(4):.0f}% at 4×",
        f"{100 * coverage(3):.0f}% with three rounds, {100 * coverage(6):.0f}% with six",
        f"{use.hours_per_run:.0f} hours per run and {use.runs_per_year:.0f} runs per year",
        f"{NCCL_PAIR_BYTES / 2**20:.0f} MiB for two GPUs, {NCCL_GROUP_BYTES / 2**20:.0f} MiB for",
        f"rounds each up to {BLOCK_BYTES} bytes",
    ):
        assert claim in text


@pytest.mark.longer
@pytest.mark.torch
def test_the_readme_example_is_the_commands_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ((command, shown),) = re.findall(r"```console\n\$ memorymark (.*)\n([^`]*)```", README)
    assert_prints(command.split(), shown, monkeypatch, capsys)
