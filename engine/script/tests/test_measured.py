"""A user's training code measured on the local device."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engine import script_analysis
from engine.cli.main import main
from engine.core.errors import DoesNotFit, InvalidInput, MeasurementFailed
from engine.events import Event, Log
from engine.interface.result import AnalysisResult
from engine.interface.trial import Source, Trial
from engine.measurement import (
    cpu,
    environment,
    measured_analysis,
    measured_script,
    parent,
    rounds,
    trials,
)
from engine.measurement.protocol import DeviceFacts, TrialOrder
from engine.script.factory import Factory
from engine.script.request import ScriptRequest
from engine.script.tests.scripts import (
    ACCUMULATING,
    ADAM,
    BY_VALUE,
    EXAMPLE,
    LINEAR,
    linear,
    written,
)
from engine.script.trace import trace_script

CPU = DeviceFacts("cpu", "CPU (test)", 2**36, 0, 0.0)

IN_TURN = 6
"""Trials of the fewest rounds in which current and recommended batch are compared."""


@pytest.mark.slow
class TestMeasured:
    """Measured on the local device, each trial in a fresh process."""

    @pytest.fixture
    def here(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """Runs trials in this process, for speed; returns the batch sizes tried."""
        tried: list[int] = []

        def measure(order: TrialOrder) -> Trial:
            tried.append(order.batch_size)
            return cpu.run_trial(order)

        monkeypatch.setattr(script_analysis, "local_device", lambda: CPU)
        monkeypatch.setattr(measured_script, "local_device", lambda: CPU)
        monkeypatch.setattr(measured_analysis, "measure", measure)
        monkeypatch.setattr(trials, "measure", measure)
        monkeypatch.setattr(trials, "record", cpu.record)
        monkeypatch.setattr(trials, "measured_on", environment.measured_on)
        monkeypatch.setattr(rounds, "ENOUGH_SECONDS", 0.0)  # the fewest rounds
        return tried

    def needed(self, factory: Factory, batch_size: int) -> int:
        return trace_script(factory, batch_size, None).peak_by_category()[0]

    def answer(self, factory: Factory, **given: object) -> AnalysisResult:
        from engine.script_analysis import analyze_script

        return analyze_script(ScriptRequest.parse(factory, given), lambda _: None)

    def test_the_limit_is_certified_in_four_trials(self, here: list[int]) -> None:
        factory = Factory.of(EXAMPLE)
        result = self.answer(factory, memory_limit_bytes=self.needed(factory, 21))
        assert (result.largest_batch_size, result.next_batch_size_fails) == (21, True)
        assert here[:3] == [16, 21, 22]
        assert len(here) <= 4 + IN_TURN
        assert result.source is Source.MEASURED
        assert result.model_name == EXAMPLE
        assert result.workload is None
        assert result.timeline
        assert result.largest_tensors

    def test_code_that_cannot_be_traced_is_searched_by_measuring(
        self, folder: Path, here: list[int]
    ) -> None:
        followed = linear(folder)
        limit = self.needed(followed, 2003)
        (folder / "values.py").write_text(LINEAR.format(optimizer=ADAM, last=BY_VALUE))
        log: list[Event] = []
        from engine.script_analysis import analyze_script

        asked = {"memory_limit_bytes": limit, "current_batch_size": 4}
        request = ScriptRequest.parse(Factory.of("values:make_step"), asked)
        result = analyze_script(request, log.append)
        assert result.largest_batch_size == 2003
        assert len(here) <= 10 + IN_TURN
        warnings = [event for event in log if isinstance(event, Log) and event.level == "warning"]
        assert "Searching without a prediction" in warnings[0].message

    def test_where_no_multiple_fits_every_batch_is_tried_and_the_answer_says_so(
        self, here: list[int]
    ) -> None:
        factory = Factory.of(EXAMPLE)
        asked = {"batch_multiple": 16, "current_batch_size": 4}
        result = self.answer(factory, memory_limit_bytes=self.needed(factory, 9), **asked)
        assert (result.largest_batch_size, result.next_batch_size_fails) == (9, True)
        assert any("multiple of 16" in caveat for caveat in result.caveats)

    def test_a_current_batch_that_does_not_fit_gives_no_speedup(self, here: list[int]) -> None:
        factory = Factory.of(EXAMPLE)
        limit = self.needed(factory, 9)
        result = self.answer(factory, memory_limit_bytes=limit, current_batch_size=64)
        assert result.largest_batch_size == 9
        assert result.speedup is None

    def test_code_that_fits_at_no_batch_is_reported_with_its_line(self, here: list[int]) -> None:
        with pytest.raises(DoesNotFit, match=r"batch 1 ends with out of memory at my_training\.py"):
            self.answer(Factory.of(EXAMPLE), memory_limit_bytes=2**20)

    def test_the_certificate_repeats_a_trial(
        self, here: list[int], capsys: pytest.CaptureFixture[str]
    ) -> None:
        factory = Factory.of(EXAMPLE)
        result = self.answer(factory, memory_limit_bytes=self.needed(factory, 21))
        for command, fits in zip(result.certificate, (True, False), strict=True):
            assert command.startswith("memorymark measure --factory ")
            assert main([*command.split()[1:], "--json"]) == 0
            measured = json.loads(capsys.readouterr().out)
            assert measured["fits"] is fits
            assert measured["software"]["torch"] == torch.__version__
            assert measured["caveats"][0].startswith("Each trial ran in its own process")

    def test_micro_batches_keep_the_global_batch(self, folder: Path, here: list[int]) -> None:
        factory = written(folder, ACCUMULATING.format(last=""))
        limit = self.needed(replace(factory, gradient_accumulation=2), 12)
        asked = {"current_batch_size": 4, "global_batch_size": 24, "memory_limit_bytes": limit}
        result = self.answer(factory, **asked)
        assert result.largest_batch_size == 12
        assert result.global_batch is not None
        assert result.global_batch.kept_size == 24
        assert 24 % result.recommended_batch_size == 0
        assert "--gradient-accumulation 2" in result.certificate[0]

    def test_allocator_options_without_that_allocator_are_refused(self, here: list[int]) -> None:
        with pytest.raises(InvalidInput, match="no CUDA caching allocator"):
            self.answer(Factory.of(EXAMPLE), allocator="expandable_segments:True")

    def test_each_trial_has_its_own_process(self, folder: Path) -> None:
        last = "print('a step'); import os; os.write(1, b'raw')"
        factory = linear(folder, last=last)
        trial = parent.measure(TrialOrder(factory, 8))
        assert trial.fits
        assert trial.peak_allocated_bytes == self.needed(linear(folder), 8)
        assert "mine" not in sys.modules or sys.modules["mine"].__file__

    @pytest.mark.parametrize(
        ("last", "says"),
        [
            ("raise ValueError('shapes')", r"at mine\.py, line 14 .*: ValueError: shapes"),
            ("exit(0)", "SystemExit"),
        ],
    )
    def test_an_error_in_the_script_is_reported_with_its_line(
        self, folder: Path, last: str, says: str
    ) -> None:
        with pytest.raises(MeasurementFailed, match=says):
            parent.measure(TrialOrder(linear(folder, last=last), 8))

    def test_an_order_survives_json(self) -> None:
        order = TrialOrder(Factory.of(EXAMPLE), 3, 2**30)
        assert TrialOrder.from_json(order.to_json()) == order
