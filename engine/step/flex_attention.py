"""FlexAttention in transformers' models, on fake tensors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from transformers import modeling_utils

from ..core.errors import InvalidInput
from ..tracing.flex_attention import compiled_attention
from ..versions.patches import patched, patched_names

NAME = "flex_attention"
"""Name of this attention in transformers."""

_MODULE = "transformers.integrations.flex_attention"
_integration: Any = import_module(_MODULE) if find_spec(_MODULE) is not None else None
_COMPILING = "compile_friendly_flex_attention"
_IS_THERE = hasattr(_integration, _COMPILING)

_DROPOUT = "does not support `dropout`"


@contextmanager
def compiled_in_models() -> Iterator[None]:
    """Let transformers' models call what stands for its compiled FlexAttention.

    transformers leaves out a part on the CPU, where fake tensors are; so queries say that they are
    on a GPU.
    """
    if not _IS_THERE:
        yield
        return
    functions: Any = modeling_utils.ALL_ATTENTION_FUNCTIONS
    forward = functions[NAME]

    def on_gpu(module: torch.nn.Module, query: torch.Tensor, *given: Any, **named: Any) -> Any:
        return forward(module, _OnGpu(query, query.shape, query.dtype), *given, **named)

    def compiled(query: _OnGpu, *given: Any, training: bool = False, **named: Any) -> Any:
        return compiled_attention(query.tensor, *given, **named)

    with (
        patched(
            _integration,
            _COMPILING,
            compiled,
            why="what stands for compiled FlexAttention is called in its place",
        ),
        patched_names(
            [(type(functions)._global_mapping, NAME, on_gpu)],
            why="transformers leaves out a part on the CPU, where fake tensors are",
        ),
    ):
        yield


@dataclass(frozen=True)
class _OnGpu:
    """A query, as far as transformers asks for what it is."""

    tensor: torch.Tensor
    shape: torch.Size
    dtype: torch.dtype
    device = torch.device("cuda")


def check_release() -> None:
    """Refuse releases of transformers whose FlexAttention is not known.

    Raises:
        InvalidInput: If this is one.
    """
    if not _IS_THERE:
        message = "this release of transformers does not compile FlexAttention; update it"
        raise InvalidInput({"attention": f"{message}, or choose sdpa"})


def refuse_dropout(error: ValueError) -> None:
    """Word transformers' error where a model drops scores, which FlexAttention cannot.

    Raises:
        InvalidInput: If it is that error.
    """
    if _DROPOUT in str(error):
        message = "FlexAttention has no dropout, and this model drops scores; choose sdpa"
        raise InvalidInput({"attention": message}) from error
