from __future__ import annotations

import pytest
import torch

from engine.tracing.lowering import CudaTemporaries, cuda_behaviour
from engine.tracing.recorded import Temporary

aten = torch.ops.aten
WORKSPACE = Temporary(8_519_680, kept=True)


@pytest.fixture
def temporaries() -> CudaTemporaries:
    return CudaTemporaries(cuda_behaviour(8.6))


def test_each_thread_with_matrix_products_keeps_one_cublas_workspace(
    temporaries: CudaTemporaries,
) -> None:
    assert list(temporaries("forward", aten.relu.default, ())) == []
    assert list(temporaries("forward", aten.addmm.default, ())) == [WORKSPACE]
    assert list(temporaries("forward", aten.mm.default, ())) == []
    assert list(temporaries("backward", aten.bmm.default, ())) == [WORKSPACE]
    assert list(temporaries("backward", aten.mm.default, ())) == []
    assert list(temporaries("optimizer", aten.mm.default, ())) == []


def test_attention_takes_scratch_memory_for_backward_and_frees_it(
    temporaries: CudaTemporaries,
) -> None:
    query = torch.empty(2, 12, 128, 64, device="meta")
    backward = aten._scaled_dot_product_efficient_attention_backward.default
    scratch = list(temporaries("backward", backward, (query, query, query, query)))
    assert scratch == [Temporary(query.nbytes), Temporary(2 * 12 * 2 * 1 * 16_400)]

    half = query.half()
    (workspace,) = temporaries("backward", backward, (half, half, half, half))
    assert workspace == Temporary(2 * 12 * 2 * 1 * 16_400)

    flash = aten._scaled_dot_product_flash_attention_backward.default
    (summed,) = temporaries("backward", flash, (half, half, half, half))
    assert summed == Temporary(4 * 2 * 12 * 128 * (64 + 1))


@pytest.mark.parametrize(
    ("width", "heads_of_keys", "per_position"),
    [
        (80, 8, 4 * (96 + 1)),
        (160, 8, 4 * (192 + 1)),
        (80, 2, 4 * (96 + 1) + 2 * 2 * 80),
    ],
)
def test_flash_attention_pads_widths_and_expands_grouped_gradients_to_every_head(
    temporaries: CudaTemporaries, width: int, heads_of_keys: int, per_position: int
) -> None:
    query = torch.empty(3, 8, 256, width, device="meta", dtype=torch.bfloat16)
    key = torch.empty(3, heads_of_keys, 256, width, device="meta", dtype=torch.bfloat16)
    backward = aten._scaled_dot_product_flash_attention_backward.default
    (scratch,) = temporaries("backward", backward, (query, query, key, key))
    assert scratch == Temporary(3 * 8 * 256 * per_position)
