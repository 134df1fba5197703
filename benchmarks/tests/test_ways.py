"""Ways of training: which published measurements back each, and what else does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import engine
from benchmarks.ways import HEADINGS, WAYS, cells

LORA = {"model": "gpt2", "lora_rank": 4}


def _comparison(
    workload: dict[str, Any] | None, error: float | None = None, fits: bool = True, ran: bool = True
) -> dict[str, Any]:
    measurement = {"workload": workload, "ran": ran}
    return {"measurement": measurement, "error": error, "fits": fits}


def _rows(*comparisons: dict[str, Any]) -> dict[str, list[str]]:
    return {name: rest for name, *rest in cells(comparisons)}


def test_a_measurement_counts_for_every_way_that_it_is_trained_in() -> None:
    whole = {"model": "gpt2", "precision": "bf16-mixed"}
    rows = _rows(_comparison(LORA, -0.02), _comparison(LORA, 0.01), _comparison(whole, 0.03))
    assert rows["LoRA"][:4] == ["2", "1.5%", "2.0%", "0 of 2"]
    assert rows["all weights trained"][:3] == rows["mixed precision"][:3] == ["1", "3.0%", "3.0%"]
    assert rows["ZeRO"][:5] == ["-"] * 5


def test_a_verdict_counts_without_a_number() -> None:
    rows = _rows(
        _comparison(LORA, fits=False),
        _comparison(LORA, fits=True),
        _comparison(LORA, fits=True, ran=False),
    )
    assert rows["LoRA"][:5] == ["-", "-", "-", "1 of 2", "1 of 1"]


def test_what_is_not_predicted_or_has_no_workload_counts_nowhere() -> None:
    unknown = _comparison(LORA) | {"fits": None}
    assert cells([unknown, _comparison(None, 0.1)]) == cells([])


def test_each_way_names_tests_that_there_are() -> None:
    files = {path.name for path in Path(engine.__file__).parent.glob("*/tests/test_*.py")}
    assert [way.name for way in WAYS if f"test_{way.tests}.py" not in files] == []
    assert {len(row) for row in cells([])} == {len(HEADINGS)}
