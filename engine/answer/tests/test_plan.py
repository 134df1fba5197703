"""The plan compares every GPU for a workload, and prints that with its ladder."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from engine.answer.economics import usd_per_million_samples
from engine.answer.ladder import CHECKPOINTING, Learning, Rung
from engine.answer.plan import Plan, Room
from engine.cli.plan import render_plan
from engine.core.errors import InvalidInput
from engine.core.sizes import GIB
from engine.events import Event
from engine.gpus import GPUS, Gpu, Vendor, with_prices
from engine.interface.request import AnalysisRequest
from engine.interface.trial import Source, Trial
from engine.prediction.plans import climbing
from engine.prediction.plans import plan as plan_module
from engine.prediction.plans.plan import plan
from engine.prediction.probe import timed
from engine.prediction.tests.made import MadePrediction
from engine.prediction.timing.intervals import RelativeRange
from engine.tests.shared import step_of
from engine.traces import workloads
from engine.traces.batch_rule import trace_every_batch_size
from engine.traces.source import TraceSource


def ask(gpu: str = "a10", **fields: object) -> AnalysisRequest:
    return AnalysisRequest.parse({"model": "bert", "gpu": gpu, "sequence_length": 32} | fields)


def quiet(event: Event) -> None:
    """Ignores events."""


WIDE = RelativeRange(0.8, 1.25)


def predictor(fixed_gib: float, gib_per_sample: float) -> Callable[..., Trial]:
    """A predictor whose speed rises with the batch and with the GPU's bandwidth."""

    def predict(gpu: Gpu, batch_size: int) -> Trial:
        used = int((fixed_gib + gib_per_sample * batch_size) * GIB)
        fits = used <= gpu.total_bytes
        speed = gpu.memory_bytes_per_second / 1e9 * batch_size / (batch_size + 4)
        trial = Trial(
            batch_size,
            fits,
            Source.PREDICTED,
            peak_reserved_bytes=used - gpu.context_bytes,
            device_used_bytes=used,
            device_used_high_bytes=used,
        )
        return timed(trial, step_of(batch_size / speed), batch_size, WIDE) if fits else trial

    return predict


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Plan]:
    """A plan from made-up predictions, without a ladder."""

    monkeypatch.setattr(climbing, "processes_here", lambda: 1)

    def make(request: AnalysisRequest, fixed_gib: float = 1.0, each: float = 0.5) -> Plan:
        def on(gpu: Gpu) -> MadePrediction | InvalidInput:
            try:
                there = replace(request, gpu=gpu.name)
            except InvalidInput as error:
                return error
            return MadePrediction(there, gpu, partial(predictor(fixed_gib, each), gpu))

        made = SimpleNamespace(on=on)
        monkeypatch.setattr(plan_module, "_Predictions", lambda *_: made)
        monkeypatch.setattr(plan_module, "ModelClimb", lambda *_, **__: None)
        return plan(request, quiet)

    return make


def test_every_catalogue_gpu_is_listed_in_order(planned: Callable[..., Plan]) -> None:
    made = planned(ask())
    assert [option.gpu for option in made.options] == list(GPUS)
    for option in made.options:
        assert option.fits
        assert 0 < (option.recommended_batch_size or 0) <= option.largest_batch_size


def test_a_gpu_with_too_little_memory_shows_what_is_needed(planned: Callable[..., Plan]) -> None:
    made = planned(ask("a100-80gb"), 30.0)
    small = next(option for option in made.options if option.gpu == "t4")
    assert not small.fits
    assert small.why_not == "batch 1 needs 30.5 GiB"
    assert (small.largest_batch_size, small.recommended_batch_size) == (0, None)
    assert small.usd_per_million_samples is None
    assert made.cheapest not in ("t4", None)


def test_a_gpu_that_lacks_a_number_format_says_so(planned: Callable[..., Plan]) -> None:
    made = planned(ask(precision="bf16-mixed"))
    refused = {option.gpu: option.why_not for option in made.options if not option.fits}
    assert set(refused) == {gpu.name for gpu in GPUS.values() if gpu.bf16_flops is None}
    assert "has no bf16" in refused["t4"]


def test_a_million_samples_cost_the_price_of_their_hours(planned: Callable[..., Plan]) -> None:
    option = planned(ask()).options[0]
    assert option.samples_per_second is not None
    hours = 1e6 / option.samples_per_second / 3600
    assert option.usd_per_million_samples == pytest.approx(hours * (option.price_per_hour_usd or 0))
    assert usd_per_million_samples(3.6, 1000) == pytest.approx(1.0)
    for speed in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="positive"):
            usd_per_million_samples(1.0, speed)


def test_a_run_takes_the_assumed_hours_at_the_current_batch(planned: Callable[..., Plan]) -> None:
    made = planned(ask("a10", current_batch_size=4, hours_per_run=10))
    today = predictor(1.0, 0.5)(GPUS["a10"], 4).samples_per_second
    assert today is not None
    for option in made.options:
        assert option.samples_per_second is not None
        hours = 10 * today / option.samples_per_second
        assert option.hours_per_run == pytest.approx(hours)
        if option.price_per_hour_usd is None:
            assert option.usd_per_run is None
        else:
            assert option.usd_per_run == pytest.approx(hours * (option.price_per_hour_usd or 0))


def test_the_cheapest_the_best_value_and_the_fastest_are_named(
    planned: Callable[..., Plan],
) -> None:
    made = planned(ask())
    by_name = {option.gpu: option for option in made.options}
    assert made.cheapest is not None
    assert made.best_value is not None
    assert made.fastest is not None
    ranked = [option for option in made.options if not option.speed_is_a_guess]
    assert {option.gpu for option in made.options} - {option.gpu for option in ranked} == {
        gpu.name for gpu in GPUS.values() if gpu.vendor is Vendor.AMD
    }
    prices = [option.price_per_hour_usd or 99 for option in ranked]
    values = [option.usd_per_million_samples or 99 for option in ranked]
    speeds = [option.samples_per_second or 0 for option in ranked]
    assert by_name[made.cheapest].price_per_hour_usd == min(prices)
    assert by_name[made.best_value].usd_per_million_samples == min(values)
    assert by_name[made.fastest].samples_per_second == max(speeds)


def test_no_gpu_is_named_where_nothing_fits(planned: Callable[..., Plan]) -> None:
    made = planned(ask("h100"), 1000.0)
    assert (made.cheapest, made.best_value, made.fastest) == (None, None, None)
    assert any("does not fit on NVIDIA H100" in caveat for caveat in made.caveats)
    assert "fits on no GPU" in shown(made)


def test_without_a_current_gpu_no_run_has_a_price(planned: Callable[..., Plan]) -> None:
    made = planned(ask("local"))
    assert made.current_gpu is None
    assert made.ladder == []
    assert all(option.usd_per_run is None for option in made.options)
    assert "per run" not in shown(made)


def test_a_given_price_only_applies_to_the_current_gpu(planned: Callable[..., Plan]) -> None:
    made = planned(ask("a10", price_per_hour_usd=9.5))
    prices = {option.gpu: option.price_per_hour_usd for option in made.options}
    assert prices == {gpu.name: gpu.price_per_hour_usd for gpu in GPUS.values()} | {"a10": 9.5}
    with pytest.raises(InvalidInput, match="choose the GPU"):
        planned(ask("local", price_per_hour_usd=9.5))


def test_gpus_are_compared_at_the_labs_prices(planned: Callable[..., Plan]) -> None:
    with with_prices({"h100": 0.01}):
        made = planned(ask("a10"))
    own = next(option for option in made.options if option.gpu == "h100")
    assert own.price_per_hour_usd == 0.01
    assert own.usd_per_run == pytest.approx(0.01 * (own.hours_per_run or 0))
    assert made.cheapest == made.best_value == "h100"


def test_a_current_batch_that_does_not_fit_gives_no_cost_per_run(
    planned: Callable[..., Plan],
) -> None:
    made = planned(ask("t4", current_batch_size=1000))
    assert all(option.usd_per_run is None for option in made.options)
    assert any("the cost of a run on other GPUs is not known" in c for c in made.caveats)


def test_several_gpus_cost_as_many_prices(planned: Callable[..., Plan]) -> None:
    made = planned(ask(parallelism="ddp", world_size=4))
    option = made.options[0]
    assert option.usd_per_million_samples == pytest.approx(
        usd_per_million_samples(
            4 * (option.price_per_hour_usd or 0), option.samples_per_second or 0
        )
    )


def test_the_global_batch_limits_every_gpu(planned: Callable[..., Plan]) -> None:
    made = planned(ask(current_batch_size=2, global_batch_size=12))
    assert made.global_batch is not None
    assert made.global_batch.kept_size == 12
    for option in made.options:
        assert 12 % (option.recommended_batch_size or 0) == 0
        assert option.gradient_accumulation == 12 // (option.recommended_batch_size or 1)


@pytest.mark.slow
@pytest.mark.usefixtures("small_models")
def test_gpus_with_equal_traces_share_them(monkeypatch: pytest.MonkeyPatch) -> None:
    traced: list[object] = []

    def counted(*given: Any) -> TraceSource:
        traced.append(given)
        return trace_every_batch_size(*given)

    monkeypatch.setattr(climbing, "processes_here", lambda: 1)
    monkeypatch.setattr(workloads, "trace_every_batch_size", counted)
    made = plan(ask("local"), quiet)
    assert 1 <= len(traced) < len({gpu.compute_capability for gpu in GPUS.values()})
    assert all(option.fits for option in made.options)
    json.dumps(made.to_dict())


def shown(made: Plan, width: int = 80) -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(render_plan(made))
    return out.getvalue()


def test_the_tables_fit_80_columns(planned: Callable[..., Plan]) -> None:
    text = shown(planned(ask("a10", precision="bf16-mixed", current_batch_size=4)))
    assert max(len(line) for line in text.splitlines()) <= 80
    for words in (
        "Of the GPUs that surely fit",
        "a10 (yours)",
        "GPUs that cannot be used",
        "has no bf16",
        "$",
        "assumed",
    ):
        assert words in text


def test_where_no_gpu_surely_fits_the_best_of_those_that_may_are_called_that(
    planned: Callable[..., Plan],
) -> None:
    made = planned(ask("a10"))
    options = [replace(option, is_sure=False) for option in made.options]
    text = " ".join(shown(replace(made, options=options)).split())
    assert "No GPU surely fits. Of those that may, lowest price: " in text
    assert "cheapest per sample: " in text
    assert "fastest: " in text


def test_gpus_that_may_not_fit_are_named_in_a_narrow_terminal_too(
    planned: Callable[..., Plan],
) -> None:
    made = planned(ask("a10"))
    options = [replace(option, is_sure=option.gpu != "l4") for option in made.options]
    text = shown(replace(made, options=options))
    assert "May not fit: l4.\n" in " ".join(text.split(" "))
    assert "…" not in text
    sure = [replace(option, is_sure=True) for option in options]
    assert "May not fit" not in shown(replace(made, options=sure))


def test_the_ladder_and_the_room_are_printed(planned: Callable[..., Plan]) -> None:
    rungs = [
        Rung(["batch 48"], {}, Learning.GLOBAL_BATCH, fits=True, speedup=1.2),
        Rung(
            ["bf16", CHECKPOINTING, "batch 128"],
            {"precision": "bf16-mixed", "gradient_checkpointing": True},
            Learning.NUMERICS,
            fits=True,
            speedup=2.91,
            speedup_low=2.5,
            speedup_high=3.3,
            usd_per_run=2.36,
            training="raises the batch per optimizer step from 16 to 128 and changes the numerics",
        ),
        Rung(["LoRA"], {"lora_rank": 8}, why_not="it has no linear layers"),
    ]
    rungs[0] = replace(rungs[0], learning_rate="Learning rate: start from 1.7 times yours.")
    room = Room(16, 19 * GIB, 2048, "bert-large", "BERT large", "l4", "NVIDIA L4", 0.8, 6)
    text = shown(replace(planned(ask("a10")), ladder=rungs, room=room))
    assert max(len(line) for line in text.splitlines()) <= 80
    for words in (
        "The best moves",
        "2.9\N{MULTIPLICATION SIGN}",
        "2.5–3.3×",
        "2.36",
        "numerics",
        "What to change",
        "Nothing that was tried is surely faster.",
        "What they do to training",
        "raises the batch per optimizer step",
        "LoRA: it has no linear layers",
        "19.0 GiB are free at batch 16",
        "2,048 tokens surely fit",
        "BERT large surely fits",
        "NVIDIA L4 has at least 95% of this speed",
        "6 such runs share",
    ):
        assert words in text, words
