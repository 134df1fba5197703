"""Uses of the memory left free, in a made-up world where memory is a simple formula."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.answer.plan import GpuOption
from engine.core.errors import InvalidInput
from engine.core.sizes import GIB
from engine.gpus import GPUS
from engine.interface.request import AnalysisRequest
from engine.interface.trial import Source, Trial
from engine.models.presets import PRESETS
from engine.prediction.plans.room import largest_sibling, longest_sequence, room


class World:
    """Memory that grows with the parameters and, from ``fixed`` GiB, with the sequence."""

    def __init__(self, total_gib: float, each_kib: float = 1024.0, power: int = 1, **fields: Any):
        given = {"model": "llama-3.2-1b", "gpu": "a10", "sequence_length": 512}
        self.request = AnalysisRequest.parse(given | {"current_batch_size": 4} | fields)
        self.gpu = replace(GPUS["a10"], total_bytes=int(total_gib * GIB))
        self._each, self._power = each_kib * 1024, power
        self.parameters = self._parameters(self.request)
        self.asked: list[AnalysisRequest] = []
        self.today = self.predict(self.request)

    def _parameters(self, request: AnalysisRequest) -> float:
        return PRESETS[request.workload.model].parameters

    def predict(self, request: AnalysisRequest) -> Trial:
        length = (request.workload.sequence_length or 0) ** self._power
        used = int(16 * self._parameters(request) + self._each * length)
        return Trial(
            request.known_batch_size,
            used <= self.gpu.total_bytes,
            Source.PREDICTED,
            device_used_bytes=used,
            device_used_high_bytes=used,
        )

    def trial_of(self, request: AnalysisRequest) -> Trial:
        self.asked.append(request)
        return self.predict(request)


FIXED = 16 * PRESETS["llama-3.2-1b"].parameters / GIB


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("longest", [512, 1024, 2560, 8192])
def test_the_longest_sequence_that_fits_is_found_by_few_traces(longest: int, power: int) -> None:
    each = 4096.0 if power == 1 else 2.0
    world: Any = World(FIXED + each * 1024 * (longest + 100) ** power / GIB, each, power)
    found = longest_sequence(world)
    assert len(world.asked) <= 4
    if longest == 512:
        assert found is None
    elif power == 1:
        assert found == longest
    else:
        assert found is not None
        assert 512 < found <= longest


def test_a_sequence_is_as_long_as_the_model_allows() -> None:
    assert longest_sequence(World(1000.0, model="bert", sequence_length=100)) == 512  # type: ignore[arg-type]  # a World in place of a predictor
    assert longest_sequence(World(1000.0, model="bert")) is None  # type: ignore[arg-type]  # a World in place of a predictor
    images: Any = World(1000.0, model="resnet", sequence_length=None)
    assert longest_sequence(images) is None


def test_the_largest_sibling_that_fits_is_found() -> None:
    def sibling(gib: float, **fields: Any) -> str | None:
        world: Any = World(gib, **fields)
        return largest_sibling(world)

    assert sibling(1000.0) == "llama-3.1-8b"
    assert sibling(60.0) == "llama-3.2-3b"
    assert sibling(25.0) is None
    assert sibling(1000.0, model="llama-3-8b") is None
    assert sibling(1000.0, model="bert") == "bert-large"


def test_a_sibling_that_cannot_be_trained_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    world: Any = World(1000.0)
    refuse = InvalidInput({"model": "no"})

    def trial_of(request: AnalysisRequest) -> Trial:
        asked.append(request.workload.model)
        if request.workload.model == "llama-3.1-8b":
            raise refuse
        return World.trial_of(world, request)

    asked: list[str] = []
    world.trial_of = trial_of
    assert largest_sibling(world) == "llama-3.2-3b"
    assert asked == ["llama-3.1-8b", "llama-3.2-3b"]  # and no other of the size that was refused


def option(gpu: str, speed: float | None) -> GpuOption:
    known = GPUS[gpu]
    return GpuOption(
        gpu,
        known.display_name,
        known.total_bytes,
        known.price_per_hour_usd,
        fits=speed is not None,
        samples_per_second=speed,
    )


def test_the_cheapest_gpu_that_is_as_fast_is_named() -> None:
    world: Any = World(100.0)
    options = [option("a10", 10.0), option("l4", 9.6), option("t4", 9.4), option("h100", 99.0)]
    found = room(world, options, 1024, "llama-3.2-3b")
    assert found is not None
    assert (found.gpu, found.gpu_price_per_hour_usd) == ("l4", GPUS["l4"].price_per_hour_usd)
    assert (found.sequence_length, found.model_name) == (1024, "Llama 3.2 3B")
    assert found.runs == world.gpu.total_bytes // world.today.device_used_bytes
    assert found.free_bytes == world.gpu.total_bytes - world.today.device_used_bytes
    slower = room(world, [option("a10", 10.0), option("l4", 9.4)], None, None)
    assert slower is not None
    assert (slower.gpu, slower.model_name) == (None, "")


def test_where_the_current_batch_does_not_fit_there_is_no_room() -> None:
    world: Any = World(1.0)
    assert room(world, [option("a10", None)], None, None) is None
    assert longest_sequence(world) is None
    assert largest_sibling(world) is None
