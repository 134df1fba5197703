"""The cost of one operator call."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.flop_counter import flop_registry, shape_wrapper

from engine.tracing.operations import cost

_aten = torch.ops.aten
BATCH, HEADS, LENGTH, WIDTH = 2, 8, 16, 4
PRODUCT = 2 * BATCH * HEADS * LENGTH * LENGTH * WIDTH


def _of_heads(heads: int) -> torch.Tensor:
    return torch.empty(BATCH, heads, LENGTH, WIDTH, device="meta")


def _refuses_groups(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    """Fails like the formula of torch 2.11."""
    if not query[1] == key[1] == value[1]:
        raise AssertionError("shapes are incompatible")
    return 1


def test_attention_with_grouped_queries_has_as_many_flops_as_without() -> None:
    query = _of_heads(HEADS)
    for keys in (_of_heads(HEADS), _of_heads(2)):
        forward = _aten._scaled_dot_product_flash_attention.default
        done = cost("forward", forward, (query, keys, keys), {}, query)
        assert done is not None
        assert done.flops == 2 * PRODUCT
        backward = _aten._scaled_dot_product_cudnn_attention_backward.default
        done = cost("backward", backward, (query, query, keys, keys, query), {}, query)
        assert done is not None
        assert done.flops == 5 * PRODUCT


def test_grouped_queries_are_counted_without_pytorchs_support(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    attention = _aten._scaled_dot_product_efficient_attention
    formula = shape_wrapper(_refuses_groups)
    monkeypatch.setitem(flop_registry, attention, formula)
    query, keys = _of_heads(HEADS), _of_heads(2)
    done = cost("forward", attention.default, (query, keys, keys, None, True), {}, query)
    assert done is not None
    assert done.flops == 1
