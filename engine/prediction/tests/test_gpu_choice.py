"""An analysis of any GPU answers for the one that trains the workload at the lowest cost."""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from engine import analysis
from engine.analysis import analyze
from engine.core.errors import DoesNotFit, InvalidInput
from engine.core.sizes import GIB
from engine.events import Event, Log
from engine.gpus import ANY, GPUS, Gpu, with_prices
from engine.interface.request import AnalysisRequest
from engine.interface.trial import Source, Trial
from engine.prediction.limits import Limits, find_limits
from engine.prediction.plans import gpu_choice
from engine.prediction.plans.gpu_choice import GpuChoice, choose_gpu
from engine.prediction.predicted_analysis import analyze_predicted
from engine.prediction.probe import timed
from engine.prediction.refusals import fits_on_none
from engine.prediction.tests.made import MadePrediction
from engine.prediction.timing.intervals import RelativeRange
from engine.tests.shared import step_of

WIDE = RelativeRange(0.8, 1.25)
Choose = Callable[..., GpuChoice[AnalysisRequest]]


def ask(**fields: object) -> AnalysisRequest:
    return AnalysisRequest.parse({"model": "bert", "gpu": ANY} | fields)


def trial_on(gpu: Gpu, batch_size: int, gib_per_sample: float) -> Trial:
    """Speed follows bandwidth; memory its high end by a tenth."""
    used = int((20 + gib_per_sample * batch_size) * GIB)
    fits = used <= gpu.total_bytes
    speed = gpu.memory_bytes_per_second / 1e9 * batch_size / (batch_size + 4)
    trial = Trial(
        batch_size,
        fits,
        Source.PREDICTED,
        peak_reserved_bytes=used - gpu.context_bytes,
        device_used_bytes=used,
        device_used_high_bytes=used + used // 10,
    )
    return timed(trial, step_of(batch_size / speed), batch_size, WIDE) if fits else trial


@pytest.fixture
def choose(monkeypatch: pytest.MonkeyPatch) -> Choose:
    """Chooses with trials that are made up; returns also what was logged."""
    monkeypatch.setattr(gpu_choice, "processes_here", lambda: 1)

    def chosen(
        request: AnalysisRequest,
        gib_per_sample: float = 0.1,
        logged: list[Event] | None = None,
        **prices: float,
    ) -> GpuChoice[AnalysisRequest]:
        def prediction(there: AnalysisRequest, gpu: Gpu, _: object) -> MadePrediction:
            def speed(size: int) -> float:
                return gpu.memory_bytes_per_second / 1e9 * size / (size + 4)

            return MadePrediction(
                there, gpu, lambda size: trial_on(gpu, size, gib_per_sample), speed
            )

        events: list[Event] = [] if logged is None else logged
        by_name = {name.replace("_", "-"): price for name, price in prices.items()}
        refusal = partial(fits_on_none, request)
        with with_prices(by_name):
            return choose_gpu(request, prediction, refusal, events.append)

    return chosen


def price(gpu: Gpu) -> float:
    return gpu.price_per_hour_usd or 0.0


COMPARED = [gpu for gpu in GPUS.values() if gpu.price_per_hour_usd and gpu.rates_known]


def found_on(gpu: Gpu) -> Limits:
    """Answer of 0.1 GiB a sample on a GPU."""
    there = AnalysisRequest.parse({"model": "bert", "gpu": gpu.name})
    return find_limits(MadePrediction(there, gpu, lambda size: trial_on(gpu, size, 0.1)))


def value(gpu: Gpu) -> float:
    """The price of a sample at the batch that is recommended there, up to a factor."""
    choice = found_on(gpu).choice
    assert choice is not None
    return price(gpu) / (trial_on(gpu, choice.batch_size, 0.1).samples_per_second or 0.0)


def surely_fitting() -> list[Gpu]:
    found = [(gpu, found_on(gpu)) for gpu in COMPARED]
    return [gpu for gpu, on in found if on.choice and on.safe_batch_size >= on.choice.batch_size]


def test_the_best_value_of_those_that_surely_fit_is_chosen(choose: Choose) -> None:
    found = choose(ask())
    ranked = sorted(surely_fitting(), key=value)
    best, *runners_up = ranked[:4]
    assert found.request.gpu == best.name
    assert found.reason.startswith(f"{best.display_name} is the cheapest that surely fits, $")
    assert "at an assumed price" in found.reason
    named = found.reason.split("Runners-up: ")[1]
    assert all(f"{gpu.display_name} $" in named for gpu in runners_up)


def test_gpus_that_may_be_traced_otherwise_are_begun_with_beside_the_first(
    choose: Choose, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = choose(ask())
    monkeypatch.setattr(gpu_choice, "processes_here", lambda: 2)
    receiving, sending = os.pipe()

    def limits_on(prediction: MadePrediction) -> Limits:
        if prediction.gpu.name == COMPARED[0].name:
            assert select.select([receiving], [], [], 30.0)[0], "no other process has begun"
            begun = GPUS[os.read(receiving, 1000).decode().split()[0]]
            assert begun.compute_capability != COMPARED[0].compute_capability
        else:
            os.write(sending, f"{prediction.gpu.name} ".encode())
        return find_limits(prediction)

    monkeypatch.setattr(gpu_choice, "find_limits", limits_on)
    assert choose(ask()) == alone


def test_a_cheaper_gpu_that_may_not_fit_is_named_with_its_number(choose: Choose) -> None:
    sure = {gpu.name for gpu in surely_fitting()}
    unsure = next((gpu for gpu in COMPARED if gpu.name not in sure and found_on(gpu).choice), None)
    if unsure is None:
        pytest.skip("every compared GPU surely fits this workload")
    found = choose(ask(), **{unsure.name.replace("-", "_"): 0.0001})
    assert found.request.gpu != unsure.name
    assert f"Cheaper, but may not fit: {unsure.display_name}" in found.reason


def test_every_gpu_that_was_compared_is_in_the_result(choose: Choose) -> None:
    found = choose(ask())
    assert {offer.gpu for offer in found.compared} == {gpu.name for gpu in COMPARED}
    chosen = next(offer for offer in found.compared if offer.gpu == found.request.gpu)
    cheaper = [
        offer for offer in found.compared
        if offer.is_sure
        and (offer.usd_per_million_samples or 0) < (chosen.usd_per_million_samples or 0)
    ]  # fmt: skip
    assert not cheaper


def test_without_a_current_batch_each_gpu_is_judged_at_its_own(choose: Choose) -> None:
    logged: list[Event] = []
    chosen = choose(ask(current_batch_size=None), logged=logged).request
    assert chosen.current_batch_size is None
    gpu = GPUS[chosen.gpu]
    limits = find_limits(MadePrediction(chosen, gpu, lambda size: trial_on(gpu, size, 0.1)))
    assert limits.choice is not None
    speed = trial_on(gpu, limits.choice.batch_size, 0.1).samples_per_second or 0
    cost = price(gpu) / 3600 * 1e6 / speed
    assert any(f"{gpu.display_name}: ${cost:,.2f} per million" in str(one) for one in logged)


def test_a_price_of_the_lab_counts(choose: Choose) -> None:
    found = choose(ask(), h100=0.01)
    assert found.request.gpu == "h100"
    prices = {offer.gpu: offer.price_per_hour_usd for offer in found.compared}
    assert (prices["h100"], prices["a10"]) == (0.01, GPUS["a10"].price_per_hour_usd)


def test_a_limit_on_the_price_keeps_others_out(choose: Choose) -> None:
    most = 1.0
    chosen = choose(ask(most_usd_per_hour=most)).request
    affordable = [gpu for gpu in surely_fitting() if price(gpu) <= most]
    assert chosen.gpu == min(affordable, key=value).name
    assert chosen.most_usd_per_hour is None  # it is the request for that GPU from now on


def test_a_limit_on_the_time_keeps_slow_ones_out(choose: Choose) -> None:
    chosen = choose(ask(most_hours_per_million=1e6 / 3000 / 3600)).request
    fast = [gpu for gpu in surely_fitting() if gpu.memory_bytes_per_second > 3000e9]
    assert chosen.gpu in {gpu.name for gpu in fast}


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        (
            {"most_usd_per_hour": 0.001},
            r"no GPU that fits costs so little; the cheapest is .+ at \$",
        ),
        (
            {"most_hours_per_million": 1e-9},
            r"no GPU is that fast; the fastest that fits is",
        ),
    ],
)
def test_a_limit_that_no_gpu_keeps_is_refused_with_the_nearest(
    choose: Choose, limit: dict[str, float], said: str
) -> None:
    with pytest.raises(InvalidInput, match=said) as refused:
        choose(ask(**limit))
    assert refused.value.fields.keys() == limit.keys()


def test_what_fits_on_none_says_what_is_nearest_and_what_to_try(choose: Choose) -> None:
    logged: list[Event] = []
    with pytest.raises(
        DoesNotFit,
        match=r"fits on no catalogue GPU. The nearest is NVIDIA B300: batch 1 needs",
    ):
        choose(ask(), gib_per_sample=1000, logged=logged)
    left_out, *lines = [event.message for event in logged if isinstance(event, Log)]
    assert len(lines) == len(COMPARED)
    assert left_out.startswith("Not compared, since no price is known")


def test_a_gpu_is_compared_only_with_a_price_and_a_known_speed(choose: Choose) -> None:
    logged: list[Event] = []
    chosen = choose(ask(), logged=logged, gb200=0.01, mi300x=0.001).request
    assert chosen.gpu == "gb200"  # the lab's price is one
    left_out = next(event.message for event in logged if isinstance(event, Log))
    assert "NVIDIA GB200" not in left_out
    assert "NVIDIA H20," in left_out
    assert "AMD Instinct MI300X" in left_out  # whatever it costs


def test_a_gpu_that_cannot_run_it_is_not_chosen(choose: Choose) -> None:
    chosen = choose(ask(precision="bf16-mixed"), v100_32gb=0.001).request
    assert GPUS[chosen.gpu].bf16_flops is not None


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"price_per_hour_usd": 2}, "price_per_hour_usd"),
        ({"memory_limit_bytes": "8GiB"}, "memory_limit_bytes"),
        ({"gpu": "a10", "most_usd_per_hour": 2}, "most_usd_per_hour"),
        ({"gpu": "local", "most_hours_per_million": 2}, "most_hours_per_million"),
    ],
)
def test_what_contradicts_the_choice_is_refused(fields: dict[str, object], named: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        ask(**fields)
    assert refused.value.fields.keys() == {named}


@pytest.mark.slow
def test_one_analysis_answers_for_the_chosen_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"num_hidden_layers": 1, "hidden_size": 64, "num_attention_heads": 2}
    config: dict[str, object] = small | {
        "intermediate_size": 128,
        "vocab_size": 500,
        "model_type": "bert",
    }
    config["max_position_embeddings"] = 64
    asked: list[str] = []

    def noted(request: AnalysisRequest, *args: Any, **kwargs: Any) -> Any:
        asked.append(request.gpu)
        return analyze_predicted(request, *args, **kwargs)

    monkeypatch.setattr(analysis, "analyze_predicted", noted)
    request = AnalysisRequest.parse({"config": config, "gpu": ANY, "sequence_length": 16})
    result = analyze(request, lambda _: None)
    assert [result.gpu.name] == [GPUS[name].display_name for name in asked]
    assert "is the cheapest that surely fits" in result.caveats[0]
    batch = f"batch {result.recommended_batch_size:,}"
    assert f"{batch}: cheapest that surely fits, " in result.decision
    assert result.decision.endswith("per million samples.")
    assert result.gpu.name in {GPUS[offer.gpu].display_name for offer in result.compared_gpus}
    assert result.verdict.startswith(result.decision)
    assert len(result.decision.split()) <= 15
