"""FlexAttention, which only a GPU compiles: computed for settings and for scripts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import flex_attention as flex
from torch.utils._python_dispatch import TorchDispatchMode

from engine.analysis import analyze
from engine.core.errors import InvalidInput, NotPredictable
from engine.interface.request import AnalysisRequest
from engine.interface.trial import Source
from engine.interface.workload import Workload
from engine.prediction.timing.kernels import Kind, kernel_of
from engine.script.devices.compiled import COMPILED
from engine.script.tests.scripts import written
from engine.script.trace import CannotTrace, trace_script
from engine.tests.shared import slow, small_workload
from engine.traces.tracer import trace
from engine.tracing.flex_attention import (
    COMPUTED,
    compiled_attention,
    flex_attention_lowering,
)
from engine.tracing.operations import cost
from engine.tracing.tests.lowered import A10, BRAIN
from engine.tracing.trace import Category, Operation, Trace
from engine.tracing.unsure import peak_interval, unsure_caveats

FORWARD, BACKWARD = "memorymark.flex_attention", "memorymark.flex_attention_backward"


def heads(count: int, length: int = 512, width: int = 64) -> torch.Tensor:
    """As a projection makes them: the heads of a token side by side."""
    rows = torch.ones(2, length, count, width, dtype=BRAIN, requires_grad=True)
    return rows.transpose(1, 2)


def run(query: torch.Tensor, key: torch.Tensor, **given: Any) -> Any:
    with flex_attention_lowering(lambda: True):
        return compiled_attention(query, key, key, enable_gqa=True, **given)


def test_what_is_attended_has_the_strides_of_the_query_and_each_row_a_sum() -> None:
    with FakeTensorMode():
        query, key = heads(8), heads(2)
        kept: list[torch.Tensor] = []

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            kept.append(tensor)
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            out = run(query, key)
        assert (out.shape, out.stride()) == (query.shape, query.stride())
        sums = [one for one in kept if one.dtype is torch.float32]
        assert [one.shape for one in sums] == [query.shape[:-1]]
        assert not any(one.shape[-2:] == (512, 512) for one in kept)
        given, _, _ = torch.autograd.grad(out.sum(), (query, key, key), allow_unused=True)
        assert given.stride() == query.stride()


@pytest.mark.longer
@pytest.mark.filterwarnings("ignore:flex_attention called without")
def test_without_gradients_it_is_as_pytorch_lays_it_out_on_the_cpu() -> None:
    """The one case that runs without a GPU."""
    query, key = heads(4).detach(), heads(2).detach()
    real = flex.flex_attention(query, key, key, enable_gqa=True)
    with FakeTensorMode() as mode:
        found = run(mode.from_tensor(query), mode.from_tensor(key))
    assert (found.shape, found.dtype, found.stride()) == (real.shape, real.dtype, real.stride())


def test_what_its_kernels_refuse_is_refused() -> None:
    with FakeTensorMode():
        with pytest.raises(NotPredictable, match="at least 16 wide; choose sdpa"):
            run(heads(4, width=8), heads(4, width=8))
        with pytest.raises(ValueError, match="do not go with"):
            run(heads(4), heads(3))
        bias = torch.zeros(512, requires_grad=True)
        with pytest.raises(NotPredictable, match="a bias that learns"):
            run(heads(4), heads(4), score_mod=lambda score, b, h, q, k: score + bias[k])


def causal(b: Any, h: Any, q: Any, k: Any) -> Any:
    return q >= k


def sliding(b: Any, h: Any, q: Any, k: Any) -> Any:
    return (q >= k) & (q - k < 128)


def everything(b: Any, h: Any, q: Any, k: Any) -> Any:
    return q >= 0


@pytest.mark.parametrize(
    ("mask", "share"), [(causal, 10 / 16), (sliding, 7 / 16), (everything, 1.0)]
)
def test_only_the_blocks_that_a_mask_shows_are_computed(mask: Any, share: float) -> None:
    """Counts for 4 by 4 blocks of 128 tokens, as many as PyTorch's own mask has."""
    real = flex.create_block_mask(mask, None, None, 512, 512, device="cpu")
    assert real.sparsity() == pytest.approx(100 * (1 - share))
    flops = traced_flops(lambda: mask)
    assert flops[FORWARD] == int(share * WHOLE)
    assert flops[BACKWARD] == int(2.5 * flops[FORWARD])


WHOLE = 2 * 2 * 4 * 512 * 512 * 64 * 2
"""Operations of two products of 2 samples with 4 heads, 64 wide."""


def test_a_mask_that_reads_tensors_may_show_every_block() -> None:
    def make() -> Any:
        documents = torch.zeros(2, 512, dtype=torch.int64)
        return lambda b, h, q, k: documents[b, q] == documents[b, k]

    assert traced_flops(make)[FORWARD] == WHOLE


class _Counting(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # PyTorch has no types here
        self.flops: dict[str, int] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        output = func(*args, **kwargs or {})
        counted = cost("forward", func, args, kwargs or {}, output)
        if counted is not None:
            self.flops[counted.name] = counted.flops
        return output


def traced_flops(make_mask: Callable[[], Any]) -> dict[str, int]:
    counting = _Counting()
    with FakeTensorMode(), flex_attention_lowering(lambda: True):
        query = heads(4)
        block_mask = flex.create_block_mask(make_mask(), None, None, 512, 512, device="cpu")
        with counting:
            compiled_attention(query, query, query, block_mask=block_mask).sum().backward()
    return counting.flops


def test_it_is_slower_than_flash_attention() -> None:
    def flops(name: str) -> float:
        one = Operation(name, "bfloat16", 900, 10, "forward")
        kernel = kernel_of(one, tf32=True, tf32_products=False)
        assert kernel is not None
        assert kernel.kind is Kind.ATTENTION
        return kernel.flops

    flash = flops("aten._scaled_dot_product_flash_attention")
    assert flash / 0.9 < flops(FORWARD) == flops(BACKWARD) < flash / 0.45


@pytest.mark.longer
@pytest.mark.usefixtures("small_models")
@pytest.mark.parametrize("precision", ["bf16-mixed", slow("bf16-true"), slow("fp32")])
def test_a_step_takes_about_what_flash_attention_takes(precision: str) -> None:
    """As in https://github.com/pytorch/torchtitan/pull/887: both took 36.06 GiB."""

    def peak(attention: str) -> int:
        workload = small_workload("llama-3.2-1b", attention=attention, precision=precision)
        return trace(workload, 4, A10).peak_by_category()[0]

    assert peak("flex") == pytest.approx(peak("sdpa"), rel=0.03)


@pytest.mark.slow
@pytest.mark.usefixtures("small_models")
def test_an_answer_says_that_it_is_computed() -> None:
    workload = small_workload("llama-3.2-1b", attention="flex", precision="bf16-true")
    request = AnalysisRequest(workload, gpu="a10", memory_limit_bytes=2**30)
    result = analyze(request, lambda _line: None)
    assert COMPUTED in result.caveats
    assert result.source is Source.COMPUTED


@pytest.mark.usefixtures("small_models")
def test_scores_that_are_dropped_are_refused() -> None:
    with pytest.raises(InvalidInput) as raised:
        trace(small_workload("bert", attention="flex"), 2, A10)
    assert "no dropout" in raised.value.fields["attention"]


def test_it_does_not_combine_with_keeping_what_is_dear() -> None:
    given = {"model": "llama-3.2-1b", "attention": "flex", "gradient_checkpointing": True}
    Workload.parse(given)
    with pytest.raises(InvalidInput) as raised:
        Workload.parse(given | {"recompute": "cheap"})
    assert "recompute" in raised.value.fields


SCRIPT = """
import torch
from torch import nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

attend = {attend}
mask_of = {mask_of}

def causal(b, h, q, k):
    return q >= k

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(64, 192, bias=False)

    def forward(self, x, mask):
        q, k, v = self.qkv(x).unflatten(-1, (3, 4, 16)).permute(2, 0, 3, 1, 4)
        return attend(q, k, v, block_mask=mask)

def make_step(batch_size):
    model = {model}
    optimizer = torch.optim.AdamW(model.parameters())
    mask = mask_of(causal, None, None, 2048, 2048, device="cuda")
    x = torch.ones(batch_size, 2048, 64, device="cuda")
    def step():
        optimizer.zero_grad()
        model(x, mask).sum().backward()
        optimizer.step()
    return step
"""
PLAIN = {
    "attend": "flex_attention",
    "mask_of": "torch.compile(create_block_mask)",
    "model": "Block().cuda()",
}


def traced(folder: Path, **changed: str) -> Trace:
    return trace_script(written(folder, SCRIPT.format(**PLAIN | changed)), 2, A10)


SCORES = 2048 * 2048


def largest(found: Trace) -> int:
    """Bytes of the largest tensor, but for cuBLAS' workspaces."""
    kinds = zip(found.sizes, found.categories, strict=True)
    return max(size for size, kind in kinds if kind is not Category.WORKSPACES)


def test_a_script_that_compiles_it_keeps_no_scores(folder: Path) -> None:
    found = traced(folder, attend="torch.compile(flex_attention)")
    assert {FORWARD, BACKWARD} <= {operation.name for operation in found.operations}
    assert largest(found) < SCORES
    assert unsure_caveats(found) == [COMPUTED]
    assert peak_interval(found)[1] > 0
    assert COMPILED not in found.caveats


def test_a_mask_that_is_not_compiled_is_made_whole(folder: Path) -> None:
    found = traced(folder, attend="torch.compile(flex_attention)", mask_of="create_block_mask")
    assert largest(found) >= SCORES


def test_in_a_model_that_is_compiled_it_is_compiled_too(folder: Path) -> None:
    found = traced(folder, model="torch.compile(Block().cuda())")
    assert FORWARD in {operation.name for operation in found.operations}
    assert COMPILED in found.caveats


def test_a_script_that_does_not_compile_it_is_refused(folder: Path) -> None:
    with pytest.raises(CannotTrace, match=r"call torch.compile\(flex_attention\) once"):
        traced(folder)


IN_TRANSFORMERS = """
import torch
from transformers import LlamaConfig, LlamaForCausalLM

def make_step(batch_size):
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=100, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=4, attn_implementation="flex_attention",
    )).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.ones(batch_size, 512, dtype=torch.int64, device="cuda")
    def step():
        optimizer.zero_grad()
        model(input_ids=x, labels=x).loss.backward()
        optimizer.step()
    return step
"""


@pytest.mark.longer
def test_a_script_may_leave_the_compiling_to_transformers(folder: Path) -> None:
    found = trace_script(written(folder, IN_TRANSFORMERS), 2, A10)
    names = [operation.name for operation in found.operations]
    assert names.count(FORWARD) == names.count(BACKWARD) == 2
    assert COMPILED not in found.caveats


def test_what_was_imported_while_it_was_lowered_works_afterwards(folder: Path) -> None:
    (folder / "late.py").write_text("from torch.nn.attention.flex_attention import *\n")
    with flex_attention_lowering(lambda: False):
        import late  # type: ignore[import-not-found]

        attend = late.flex_attention
        with pytest.raises(NotPredictable):
            attend(heads(2), heads(2), heads(2))
    assert attend is not flex.flex_attention
    plain = heads(2).detach()
    assert attend(plain, plain, plain).shape == plain.shape
