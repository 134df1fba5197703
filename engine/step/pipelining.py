"""A stage of a pipeline, run by PyTorch's own 1F1B schedule on fake and on real tensors.

The first stage holds the embeddings, the last one the final norm and the head, and each an equal
part of the layers, the last the remainder, as transformers' ``apply_pipeline_parallelism`` has it,
or as many as it is given. Each may be sharded or split further among the GPUs of its stage. A
stage keeps what several micro-batches need for backward: the first as many as there are stages,
each later one fewer (Narayanan et al. 2021, https://arxiv.org/abs/2104.04473).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from inspect import signature
from typing import Any

import torch
import torch.distributed as dist

from ..core.errors import InvalidInput

Pass = Callable[[], AbstractContextManager[Any]]
"""The context that a forward or backward pass runs in."""

_FIELD = "pipeline_parallel"


def load_schedule() -> None:
    """Load PyTorch's schedules, which takes a second.

    They make a tensor of their own as they are loaded, which is none of a step that is traced.
    """
    import_module(f"{__package__}.pipeline_schedule")


def cut(model: Any, index: int, count: int, layers: Sequence[int] = ()) -> torch.nn.Module:
    """Leave a causal language model only what a stage holds.

    Args:
        model: A transformers model of any device. It is changed.
        index: Index of the stage.
        count: Number of stages.
        layers: Number of layers of each stage; by default an equal part each.

    Raises:
        InvalidInput: If its parts are not where transformers' plans have them.
    """
    base: Any = getattr(model, model.base_model_prefix, None)
    if not getattr(model.config, "base_model_pp_plan", None) or not hasattr(base, "norm"):
        raise InvalidInput({_FIELD: "transformers has no plan to cut this model; leave it at 1"})
    parts = tuple(layers) or _equal_parts(len(base.layers), count)
    if sum(parts) != len(base.layers):
        message = f"the model has {len(base.layers):,} layers, not {sum(parts):,}; enter as many"
        raise InvalidInput({"stage_layers": message})
    begin = sum(parts[:index])
    base.layers = base.layers[begin : begin + parts[index]]
    if index > 0:
        if getattr(model, "_require_grads_hooks", None):  # of the embeddings, for checkpointing
            model.disable_input_require_grads()
            model._require_grads_hooks = []
        base.embed_tokens = None
    if index < count - 1:
        base.norm = torch.nn.Identity()
        model.lm_head = None
    return model  # type: ignore[no-any-return]


def _equal_parts(layers: int, count: int) -> tuple[int, ...]:
    each = layers // count
    if each == 0:
        message = f"its {layers:,} layers are fewer than the stages; enter fewer"
        raise InvalidInput({_FIELD: message})
    return (*[each] * (count - 1), layers - each * (count - 1))


class Stage(torch.nn.Module):
    """The part of a pipeline that one GPU runs.

    Args:
        model: As :func:`cut` left it.
        group: The GPUs that have the stages of one copy of the model.
        dtype: Number format of what passes between stages; by default that of the parameters.

    Attributes:
        unscheduled: Micro-batches that are not run and only have their buffers made, since they do
            as those before them.
    """

    HOLDS = "model"
    """The name of the attribute with what it runs."""

    def __init__(
        self, model: Any, group: dist.ProcessGroup, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__()
        self.model = model
        self.index, self.count = group.rank(), group.size()
        self._group, self._dtype = group, dtype or next(model.parameters()).dtype
        self.unscheduled = 0
        self._schedule: Any = None
        self._spare: list[torch.Tensor] = []

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        """Hidden states, or logits in the last stage, of token ids or hidden states."""
        name = "input_ids" if self.index == 0 else "inputs_embeds"
        model = self.model if self.index == self.count - 1 else self.model.base_model
        output = model(**{name: given}, use_cache=False)
        hidden: torch.Tensor = output[0]
        return hidden

    def run(
        self,
        inputs: list[dict[str, torch.Tensor]],
        forward: Pass,
        backward: Pass,
    ) -> None:
        """Run all micro-batches of a step forward and backward.

        Args:
            inputs: Inputs of each micro-batch, on the device.
            forward: The context of each forward pass.
            backward: The context of each backward pass.
        """
        if self._schedule is None:
            self._schedule = self._scheduled(inputs, forward, backward)
            self._spare = [
                torch.empty_like(buffer)
                for buffer in self._received(inputs[0]["input_ids"])
                for _ in range(self.unscheduled)
            ]
        ids = torch.cat([one["input_ids"] for one in inputs]) if self.index == 0 else None
        labels = None
        if self.index == self.count - 1:
            labels = torch.cat([one["labels"] for one in inputs])
        inputs.clear()
        given = () if ids is None else (ids,)
        # Before PyTorch 2.9 the last stage always gives its outputs back.
        kept = signature(self._schedule.step).parameters.get("return_outputs")
        options = {} if kept is None else {"return_outputs": False}
        self._schedule.step(*given, target=labels, **options)

    def _scheduled(
        self, inputs: list[dict[str, torch.Tensor]], forward: Pass, backward: Pass
    ) -> Any:
        from .pipeline_schedule import scheduled  # as load_schedule says

        ids = inputs[0]["input_ids"]
        hidden = self._hidden(ids)
        logits = (*ids.shape, self.model.config.vocab_size)
        is_last = self.index == self.count - 1
        return scheduled(
            self,
            (self.index, self.count),
            ids.to("meta") if self.index == 0 else hidden,
            torch.empty(logits, dtype=hidden.dtype, device="meta") if is_last else hidden,
            len(inputs),
            (forward, backward),
            self._loss,
            self._group,
        )

    def _hidden(self, ids: torch.Tensor) -> torch.Tensor:
        """Hidden states that pass between stages for a micro-batch, without values."""
        shape = (*ids.shape, self.model.config.hidden_size)
        return torch.empty(shape, dtype=self._dtype, device="meta", requires_grad=True)

    def _received(self, ids: torch.Tensor) -> list[torch.Tensor]:
        """Tensors received for a micro-batch: from neighbours, and ids or labels at an end."""
        hidden = torch.empty_like(self._hidden(ids), device=ids.device)
        neighbours = (self.index > 0) + (self.index < self.count - 1)
        ends = (self.index == 0) + (self.index == self.count - 1)
        return [hidden] * neighbours + [ids] * ends

    def _loss(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = self.model.loss_function(
            logits=logits, labels=labels, vocab_size=self.model.config.vocab_size
        )
        return loss
