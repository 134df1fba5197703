"""The loss of each task: the model's own, unless it has none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.functional import cross_entropy, interpolate, l1_loss, logsigmoid, normalize
from torch.nn.parallel import DistributedDataParallel

from ..models.tasks import Task
from ..versions.patches import patched
from .batches import Batch

Loss = Callable[[Any, Batch], torch.Tensor]
"""The loss of a model, a number, for a batch on its device."""


def loss_for(task: Task | None) -> Loss:
    """Return the function that computes the loss of a task."""
    return _LOSSES.get(task, _own) if task is not None else _own


def returns_its_loss(task: Task | None) -> bool:
    """Whether the loss of a task is one of its model's outputs."""
    return loss_for(task) is _own


def as_forward_pass(model: Any, function: Callable[..., Any], batch: Batch) -> Any:
    """Run a function as a model's forward pass, so that shards are gathered; return its result.

    FSDP gathers weights in hooks of the forward pass, and a function that reads the head's weight
    needs them; ZeRO 3 gathers a weight that is read there, and keeps it for the pass
    (``ZeROOrderedDict`` in DeepSpeed's parameter_offload.py). TRL does the same
    (``_ForwardRedirection`` in ``models/utils.py``, ``add_fused_lm_head`` in ``trainer/utils.py``),
    and Liger-Kernel puts its loss into the forward pass of each model.

    Args:
        model: Model whose forward pass it is.
        function: Takes what the model takes.
        batch: Arguments of the function.
    """
    with patched(
        unwrapped(model),
        "forward",
        function,
        why="FSDP gathers weights in hooks of the forward pass",
    ):
        return model(**batch)


def unwrapped(model: Any) -> Any:
    """The model inside DistributedDataParallel; any other itself."""
    return model.module if isinstance(model, DistributedDataParallel) else model


def _own(model: Any, batch: Batch) -> torch.Tensor:
    loss: torch.Tensor = model(**batch).loss
    return loss


def _own_on_request(model: Any, batch: Batch) -> torch.Tensor:
    loss: torch.Tensor = model(**batch, return_loss=True).loss
    return loss


def _of_similar_pairs(model: Any, batch: Batch) -> torch.Tensor:
    """Each text is closest to the other of its pair, of all in the batch.

    As ``MultipleNegativesRankingLoss`` of sentence-transformers: the model reads the first texts,
    then the second ones; tokens are averaged; similarities are cosines, scaled by 20.
    """
    half = len(batch["input_ids"]) // 2
    first, second = (
        _embeddings(model, {name: tensor[part] for name, tensor in batch.items()})
        for part in (slice(half), slice(half, None))
    )
    scores = 20.0 * (normalize(first, dim=-1) @ normalize(second, dim=-1).T)
    return cross_entropy(scores, torch.arange(half, device=scores.device))


def _embeddings(model: Any, batch: Batch) -> torch.Tensor:
    """The mean of each text's tokens, without its padding, as in sentence-transformers' pooling."""
    tokens: torch.Tensor = model(**batch).last_hidden_state
    mask = batch["attention_mask"].unsqueeze(-1).expand(tokens.shape).to(tokens.dtype)
    return torch.sum(tokens * mask, 1) / torch.clamp(mask.sum(1), min=1e-9)


def _of_preference(model: Any, batch: Batch) -> torch.Tensor:
    """The first text of each pair is worth more than the second (Bradley and Terry).

    As TRL's ``RewardTrainer``, which gives both to the model in one batch.
    """
    chosen, rejected = model(**batch).logits.squeeze(-1).chunk(2)
    return -logsigmoid(chosen - rejected).mean()


def _of_depth(model: Any, batch: Batch) -> torch.Tensor:
    """The mean absolute error of the distances, at the resolution of the images.

    transformers leaves the loss of most of these models to the user.
    """
    images = {name: tensor for name, tensor in batch.items() if name != "labels"}
    found = model(**images).predicted_depth.unsqueeze(1)
    labels = batch["labels"]
    found = interpolate(found, size=labels.shape[-2:], mode="bilinear", align_corners=False)
    return l1_loss(found.squeeze(1), labels)


_LOSSES: dict[Task, Loss] = {
    Task.CONTRASTIVE: _own_on_request,
    Task.SENTENCE_EMBEDDING: _of_similar_pairs,
    Task.DEPTH_ESTIMATION: _of_depth,
    Task.REWARD_MODELLING: _of_preference,
}
