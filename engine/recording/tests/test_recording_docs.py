"""The examples in docs/recording.md run as written."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from engine.recording import Loop, TrainingRecord

DOCUMENT = Path(__file__).parents[3] / "docs" / "recording.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.longer
@pytest.mark.torch
@pytest.mark.parametrize(
    ("example", "loop", "steps", "samples"),
    [
        (EXAMPLES[0], Loop.PLAIN, 16, 256),
        (EXAMPLES[1], Loop.TRAINER, 24, 192),
        (EXAMPLES[2], Loop.LIGHTNING, 16, 256),
    ],
    ids=["plain", "trainer", "lightning"],
)
def test_an_example_writes_its_record(
    example: str,
    loop: Loop,
    steps: int,
    samples: int,
    tmp_path: Path,
    memorymark_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if loop is Loop.LIGHTNING:
        pytest.importorskip("lightning")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(memorymark_folder)
    exec(compile(example, str(DOCUMENT), "exec"), {"__name__": "example"})  # noqa: S102  # our own document
    (line,) = (tmp_path / "training_runs.jsonl").read_text(encoding="utf-8").splitlines()
    record = TrainingRecord.parse(json.loads(line))
    assert (record.loop, record.steps, record.samples) == (loop, steps, samples)
    assert record.samples_per_second is not None
    assert record.samples_per_second > 0
