"""The loss of a language model without all of its logits at once.

The model runs with its head left out; the head is applied to a part of the tokens at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.functional import cross_entropy, log_softmax, pad

from ..core.choices import CrossEntropy
from ..core.errors import EngineError, InvalidInput
from ..tracing.operations import OWN_KERNELS
from ..tracing.registration import register
from ..versions.patches import patched
from .batches import Batch
from .losses import Loss, as_forward_pass, unwrapped
from .scoring import log_probabilities

CHUNKS = 8
"""The default ``num_output_chunks`` of torchtune's ``LinearCrossEntropyLoss``
(torchtune/modules/loss/cross_entropy_loss.py)."""

LossInParts = Callable[[torch.Tensor, Any, torch.Tensor], torch.Tensor]
"""The loss of what a head is given, the head, and the token after each."""

_IGNORED = -100
_TARGETS = ("labels", "shift_labels")

_kernels = torch.library.Library(OWN_KERNELS, "FRAGMENT")
_kernels.define(
    "cross_entropy_(Tensor(a!) logits, Tensor(b!) losses, Tensor targets, Tensor count) -> ()",
    tags=torch.Tag.pt2_compliant_tag,
)
_SUMS_IN_PLACE = hasattr(torch.ops.aten.addmm, "dtype_out")  # since torch 2.8
_missing = torch.library.Library("aten", "IMPL")


def chunked_loss(kind: CrossEntropy, *, predicting: bool) -> Loss:
    """The loss of a causal language model, a part of its tokens at a time.

    Args:
        kind: The way of computing it, other than the model's own.
        predicting: Whether its steps are traced and never run.

    Raises:
        EngineError: If the step is to run on a GPU and Liger-Kernel is not installed.
    """
    in_parts = _IN_PARTS[kind] if kind in _IN_PARTS else _fused(predicting=predicting)

    def loss(model: Any, batch: Batch) -> torch.Tensor:
        plain = unwrapped(model)
        forward = plain.forward

        def without_logits(**given: torch.Tensor) -> torch.Tensor:
            inputs = {name: one for name, one in given.items() if name not in _TARGETS}
            hidden, head = _before_the_head(plain, forward, inputs)
            return in_parts(hidden, head, _next_tokens(given))

        result: torch.Tensor = as_forward_pass(model, without_logits, batch)
        return result

    return loss


def _fused(*, predicting: bool) -> LossInParts:
    layout = _Fused.apply
    fused: Callable[..., Any] = layout if predicting else _installed()

    def loss(hidden: torch.Tensor, head: Any, targets: torch.Tensor) -> torch.Tensor:
        weight = _plain_weight(head)
        result: torch.Tensor = fused(hidden.view(-1, hidden.shape[-1]), weight, targets.view(-1))
        return result

    return loss


def _in_chunks(hidden: torch.Tensor, head: Any, targets: torch.Tensor) -> torch.Tensor:
    """As torchtune's ``LinearCrossEntropyLoss``, not compiled: chunks of the sequence.

    Of each chunk, the tokens with a target are taken out; their logits are cast to fp32.
    """
    count = (targets != _IGNORED).sum()
    chunks = min(CHUNKS, targets.shape[1])
    total = hidden.new_zeros((), dtype=torch.float32)
    for part, wanted in zip(
        hidden.tensor_split(chunks, dim=1), targets.tensor_split(chunks, dim=1), strict=True
    ):
        is_wanted = wanted != _IGNORED
        logits = head(part[is_wanted])
        total = total + cross_entropy(logits.float(), wanted[is_wanted], reduction="sum")
    return total / count


def _in_tiles(hidden: torch.Tensor, head: Any, targets: torch.Tensor) -> torch.Tensor:
    """As TRL's ``SFTTrainer`` by default (1.16, ``add_fused_lm_head``): tiles of logits.

    TRL takes out the tokens that have a target, and scores those (:mod:`.scoring`). Here all are
    taken out, since a text has a target for each token but its last.
    """
    words = targets.flatten()
    places = torch.arange(len(words), device=words.device)
    taken = hidden.flatten(0, 1)[places]
    scores = log_probabilities(taken, _plain_weight(head), words[places])
    is_wanted = words != _IGNORED
    loss: torch.Tensor = -(scores * is_wanted).sum() / is_wanted.sum().clamp(min=1)
    return loss


_IN_PARTS: dict[CrossEntropy, LossInParts] = {
    CrossEntropy.CHUNKED: _in_chunks,
    CrossEntropy.TRL: _in_tiles,
}


def _before_the_head(
    model: Any, forward: Callable[..., Any], inputs: Batch
) -> tuple[torch.Tensor, torch.nn.Module]:
    """Input of a model's head, of shape (batch, tokens, width), and the head.

    Args:
        model: Has the head.
        forward: Its own forward pass.
        inputs: Its arguments, without labels.

    Raises:
        InvalidInput: If there is no head, or the model does more to its logits.
    """
    head = model.get_output_embeddings()
    given: list[torch.Tensor] = []

    def leave_out(hidden: torch.Tensor) -> torch.Tensor:
        given.append(hidden)
        return hidden

    if head is not None:
        with patched(
            head,
            "forward",
            leave_out,
            why="the head is left out, so that its loss can be computed in parts",
        ):
            logits = forward(**inputs).logits
    if len(given) != 1 or not _is_same(logits, given[0]):
        raise _refused("the model scales its logits, or has no head of its own; choose model")
    return given[0], head


def _is_same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors are one, or an alias of it, which hooks on a module may make."""
    places = {tensor.untyped_storage()._cdata for tensor in (one, other)}
    return len(places) == 1 and one.shape == other.shape


def _plain_weight(head: Any) -> torch.nn.Parameter:
    """The weight of a head, which Liger-Kernel takes as it is.

    Raises:
        InvalidInput: If the head is no plain linear layer.
    """
    trained = getattr(head, "modules_to_save", None)  # which peft wraps around it
    if trained is not None:
        head = trained[head.active_adapters[0]]
    is_plain = type(head) is torch.nn.Linear and head.bias is None
    if not is_plain:
        raise _refused("Liger-Kernel takes a linear head without bias; choose chunked or model")
    weight: torch.nn.Parameter = head.weight
    return weight


def _refused(message: str) -> InvalidInput:
    return InvalidInput({"cross_entropy": message})


def _next_tokens(batch: Batch) -> torch.Tensor:
    """The token after each, of shape (batch, tokens); none after the last.

    They are there already where GPUs have parts of a sequence.
    """
    following: torch.Tensor | None = batch.get("shift_labels")
    if following is not None:
        return following
    labels: torch.Tensor = batch["labels"]
    return pad(labels, (0, 1), value=_IGNORED)[..., 1:].contiguous()


class _Fused(torch.autograd.Function):
    """The allocations of Liger-Kernel's fused linear cross-entropy, and its result.

    The forward pass makes the gradients of what it is given and of the weight, a chunk of tokens at
    a time. A chunk's logits take about as much as all of the hidden states: ``V / H`` chunks,
    rounded to a power of two of tokens. The kernel turns logits into their gradient in place.
    The weight's gradient is summed up in place in bf16 products; else, and on GPUs before compute
    capability 8.0, each chunk's is a tensor of its own first. That is done here in fp16 throughout.

    Source: ``fused_linear_cross_entropy_forward`` in Liger-Kernel,
    src/liger_kernel/ops/fused_linear_cross_entropy.py.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor
    ) -> torch.Tensor:
        """The mean loss; ``hidden`` (tokens, H), ``weight`` (V, H), ``targets`` (tokens)."""
        rows = chunk_rows(len(targets), *weight.shape)
        grad = torch.zeros_like(hidden)
        grad_weight = torch.zeros_like(weight) if weight.requires_grad else None
        losses = torch.zeros(len(targets), dtype=torch.float32, device=hidden.device)
        is_counted = targets != _IGNORED
        count = is_counted.sum()
        in_one = hidden.dtype is weight.dtype and not torch.is_autocast_enabled(hidden.device.type)
        kept = hidden.new_empty(rows, len(weight)) if in_one else None
        for start in range(0, len(targets), rows):
            part = hidden[start : start + rows]
            if kept is None:
                logits = part @ weight.t()
            else:
                logits = kept[: len(part)]
                torch.mm(part, weight.t(), out=logits)
            chunk = slice(start, start + len(part))
            torch.ops.memorymark.cross_entropy_(logits, losses[chunk], targets[chunk], count)
            if kept is None:
                grad[chunk] = logits @ weight
            else:
                torch.mm(logits, weight, out=grad[chunk])
            if grad_weight is not None:
                _add_product(grad_weight, logits.t(), part)
            del logits
        del kept
        ctx.save_for_backward(grad, grad_weight)
        return losses.sum()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """The gradients from the forward pass, scaled in place."""
        (gradient,) = gradients
        grad, grad_weight = ctx.saved_tensors
        for tensor in (grad, grad_weight):
            if tensor is not None:
                tensor.mul_(gradient)
        return grad, grad_weight, None


def chunk_rows(rows: int, vocabulary: int, width: int) -> int:
    """Number of tokens, out of ``rows``, that Liger-Kernel takes at a time."""
    chunks = -(-vocabulary // width)
    wanted = -(-rows // chunks)
    return min(1 << (wanted - 1).bit_length(), rows)


def _add_product(total: torch.Tensor, left: torch.Tensor, right: torch.Tensor) -> None:
    """Add the product of two matrices, without a tensor for it where there is a kernel for that."""
    right = right.to(left.dtype)
    if left.dtype is not torch.bfloat16 or not _SUMS_IN_PLACE:
        total += torch.mm(left, right).float()
    elif total.dtype is left.dtype:
        torch.addmm(total, left, right, out=total)
    else:
        torch.addmm(total, left, right, out_dtype=total.dtype, out=total)


def _cross_entropy(
    logits: torch.Tensor, losses: torch.Tensor, targets: torch.Tensor, count: torch.Tensor
) -> None:
    """Write losses, and over the logits their gradient, both of the mean over ``count``."""
    is_counted = (targets != _IGNORED)[:, None]
    wanted = targets.clamp(min=0)[:, None]
    found = log_softmax(logits.float(), -1)
    losses.copy_((-found.gather(1, wanted) * is_counted / count)[:, 0])
    gradient = found.exp().scatter_add(1, wanted, -torch.ones_like(wanted, dtype=found.dtype))
    logits.copy_(gradient * is_counted / count)


def _sum_on_cpu(
    total: torch.Tensor,
    left: torch.Tensor,
    right: torch.Tensor,
    dtype: torch.dtype,
    *,
    beta: float = 1,
    alpha: float = 1,
    out: torch.Tensor,
) -> torch.Tensor:
    """Stand in for ``addmm`` with an output format, which PyTorch has on CUDA only."""
    return out.copy_(beta * total + alpha * (left.to(dtype) @ right.to(dtype)))


_kernels.impl("cross_entropy_", _cross_entropy, "CPU")
_kernels.impl("cross_entropy_", lambda logits, losses, targets, count: None, "Meta")
if _SUMS_IN_PLACE:
    register(_missing, "addmm.dtype_out", _sum_on_cpu, "CPU")


def _installed() -> Callable[..., Any]:
    """Liger-Kernel's on a GPU; on the CPU, where it does not run, what stands for it here."""
    if not torch.cuda.is_available():
        layout: Callable[..., Any] = _Fused.apply
        return layout
    try:
        from liger_kernel.transformers.functional import liger_fused_linear_cross_entropy
    except ImportError as error:
        raise EngineError(
            "This loss is measured with Liger-Kernel, which is not installed; install it (pip "
            "install liger-kernel) or choose a catalogue GPU for a prediction"
        ) from error
    fused: Callable[..., Any] = liger_fused_linear_cross_entropy
    return fused
