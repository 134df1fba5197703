"""ZeRO 3: which weights are whole on a GPU, by the rule of DeepSpeed's coordinator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from engine.parallel.tests.test_zero import AMPERE, BATCH_SIZE, alive, most, zero
from engine.parallel.zero_division import Division
from engine.traces.tracer import meta_model, trace
from engine.tracing.trace import Category, Trace

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("small_models"), pytest.mark.torch]

GPUS = 8
Traced = Callable[..., Trace]


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> Traced:
    """A trace of GPT-2 with settings of stage 3, of which no weight is small by default."""
    usual = Division.of

    def with_settings(world_size: int = GPUS, **given: int) -> Trace:
        settings: dict[str, Any] = {"small_elements": 0} | given
        monkeypatch.setattr(Division, "of", lambda workload: replace(usual(workload), **settings))
        return trace(zero(3, world_size=world_size), BATCH_SIZE, AMPERE)

    return with_settings


def parts(model: torch.nn.Module) -> int:
    return 2 * sum(-(-one.numel() // GPUS) for one in model.parameters())


def test_what_fits_ahead_comes_in_one_buffer_and_stays_until_the_update(traced: Traced) -> None:
    """``AllGatherCoalescedHandle``: all of it is copied out at once, beside the buffer."""
    model = meta_model(zero(3))
    whole = 2 * sum(one.numel() for one in model.parameters())
    held = most(traced(), Category.PARAMETERS)
    assert held == pytest.approx(2 * whole, rel=0.01)


def test_without_reach_a_module_has_its_own_weights_alone(traced: Traced) -> None:
    model = meta_model(zero(3))
    gathered = []
    for module in model.modules():
        own = [2 * one.numel() for one in module.parameters(recurse=False)]
        gathered.append(sum(own) * (1 if len(own) == 1 else 2))  # several come in a buffer
    held = most(traced(reuse_elements=0, ahead_elements=0), Category.PARAMETERS)
    # The embeddings get no gradient of their input: theirs stay to the end of backward.
    assert max(gathered) <= held <= sum(sorted(gathered)[-3:])


def test_more_reach_never_takes_less_memory_and_gathers_less_often(traced: Traced) -> None:
    reaches = (0, 20_000, 100_000, 1_000_000_000)
    found = [traced(reuse_elements=reach, ahead_elements=0) for reach in reaches]
    held = [most(one, Category.PARAMETERS) for one in found]
    gathers = [sum("allgather" in one.name for one in each.operations) for each in found]
    assert held == sorted(held)
    assert gathers == sorted(gathers, reverse=True)
    assert gathers[0] > gathers[-1]


def test_one_gpu_gathers_nothing(traced: Traced) -> None:
    assert not any("allgather" in one.name for one in traced(world_size=1).operations)


def test_small_weights_stay_whole_from_update_to_update(traced: Traced) -> None:
    few, all_of_them = (traced(small_elements=count) for count in (0, 1_000_000_000))
    model = meta_model(zero(3))
    whole = 2 * sum(-(-one.numel() // GPUS) * GPUS for one in model.parameters())

    assert alive(few)[Category.PARAMETERS] == pytest.approx(parts(model), abs=64)
    assert alive(all_of_them)[Category.PARAMETERS] == pytest.approx(parts(model) + whole, abs=64)
