"""Weights are drawn late and on the device, and nobody can tell: neither allocator nor model."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from engine.interface.workload import Workload
from engine.measurement.weights import DrawingLater, draw
from engine.step.training import build_model
from engine.tests.shared import small_workload
from engine.tracing.operations import tensors_in

pytestmark = pytest.mark.usefixtures("small_models")

WORKLOADS: list[tuple[str, dict[str, Any]]] = [
    ("bert", {}),
    ("bert", {"precision": "bf16-true"}),
    ("gpt2", {}),
    ("resnet", {}),
    ("t5-small", {}),
    ("vit-b", {}),
    ("distilbert", {}),
    ("mixtral-8x7b", {}),
    ("detr", {}),
    ("wav2vec2", {}),
    ("llama-3.2-1b", {"lora_rank": 4, "precision": "bf16-true"}),
    ("llama-3.2-1b", {"lora_rank": 4, "adapter": "dora"}),
    ("llama-3.2-1b", {"method": "dpo"}),
]


class Allocations(TorchDispatchMode):
    """Bytes of each storage that is made on a device without values, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []
        self._known: list[torch.UntypedStorage] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        output = func(*args, **kwargs or {})
        for tensor in tensors_in(output):
            storage = tensor.untyped_storage()
            if tensor.device.type == "meta" and not any(storage is one for one in self._known):
                self._known.append(storage)
                self.sizes.append(storage.nbytes())
        return output


@pytest.fixture(params=WORKLOADS, ids=str)
def workload(request: pytest.FixtureRequest) -> Workload:
    model, fields = request.param
    if "lora_rank" in fields:
        pytest.importorskip("peft")
    return small_workload(model, **fields)


def built(workload: Workload, *, later: bool, seed: int = 0) -> torch.nn.Module:
    torch.manual_seed(seed)
    with DrawingLater() if later else nullcontext():
        model = build_model(workload)
    draw(model)
    return model


def sizes_on_device(workload: Workload, *, later: bool) -> list[int]:
    seen = Allocations()
    with seen, DrawingLater() if later else nullcontext():
        build_model(workload).to("meta")
    return seen.sizes


def values(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return dict(_named(model))


def _named(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        yield name, tensor.detach().float()


def test_the_device_gets_the_same_requests_in_the_same_order(workload: Workload) -> None:
    requests = sizes_on_device(workload, later=True)
    assert requests == sizes_on_device(workload, later=False)
    assert len(requests) > 10


def test_only_random_values_differ_and_they_are_spread_alike(workload: Workload) -> None:
    first, second = (values(built(workload, later=False, seed=seed)) for seed in (1, 2))
    late = values(built(workload, later=True))
    assert late.keys() == first.keys()
    for name, tensor in late.items():
        assert tensor.isfinite().all(), name
        if torch.equal(first[name], second[name]):
            assert torch.equal(tensor, first[name]), name
        elif tensor.numel() >= 1_000:
            assert float(tensor.std()) == pytest.approx(float(first[name].std()), rel=0.15), name


def test_tied_weights_stay_tied() -> None:
    model: Any = built(small_workload("gpt2"), later=True)
    assert model.lm_head.weight is model.transformer.wte.weight


def test_the_row_of_the_padding_is_empty() -> None:
    with DrawingLater():
        layer = torch.nn.Embedding(200_000, 2, padding_idx=7)
    draw(layer)
    assert layer.weight[7].tolist() == [0, 0]
    assert float(layer.weight.detach().std()) == pytest.approx(1, rel=0.02)


def test_a_distribution_stays_cut_off() -> None:
    with DrawingLater():
        layer = torch.nn.Linear(300, 300)
        torch.nn.init.trunc_normal_(layer.weight, std=0.5, a=-0.6, b=0.6)
    draw(layer)
    assert 0.5 < float(layer.weight.detach().abs().max()) <= 0.6


def test_no_two_rows_of_a_matrix_are_equal() -> None:
    with DrawingLater():
        layer = torch.nn.Linear(2048, 256)
    draw(layer)
    assert len({tuple(row[:4].tolist()) for row in layer.weight}) == 256


def test_what_reads_weights_on_the_host_gets_those_that_stay() -> None:
    with DrawingLater():
        layer = torch.nn.Linear(64, 64)
        norm, turned = layer.weight.detach().norm(), layer.weight.T.contiguous()
        copied = copy.deepcopy(layer)
    draw(layer)
    assert float(norm) == pytest.approx(float(layer.weight.detach().norm()))
    assert torch.equal(copied.weight, layer.weight)
    assert torch.equal(turned, layer.weight.T)


def test_copies_of_other_formats_are_drawn_in_them() -> None:
    with DrawingLater():
        layer = torch.nn.Linear(512, 512)
        torch.nn.init.normal_(layer.weight, std=0.02)
        half = layer.weight.detach().to(torch.bfloat16)
        model = torch.nn.Module()
        model.register_buffer("kept", half)
    draw(model)
    assert float(half.float().std()) == pytest.approx(0.02, rel=0.1)
    assert half.dtype is torch.bfloat16


def test_nothing_is_drawn_before_it_is_needed() -> None:
    drawn: list[Any] = []

    class Watching(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
        ) -> Any:
            if func._overloadpacket in (torch.ops.aten.normal_, torch.ops.aten.uniform_):
                drawn.extend(one.device.type for one in args if isinstance(one, torch.Tensor))
            return func(*args, **kwargs or {})

    with Watching(), DrawingLater():
        model = build_model(small_workload("bert"))
        assert drawn == []
        model.to("meta")
    assert set(drawn) == {"meta"}
