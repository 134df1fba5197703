"""Context parallelism by PyTorch's own ``context_parallel``, on any tensors.

Each GPU of a group has a part of every sequence, and attention passes keys and values around (ring
attention, Liu et al. 2023, https://arxiv.org/abs/2310.01889). As Hugging Face's Trainer and
Accelerate set it up: token ids, labels and positions are divided in place, in two pieces for each
GPU, one from the front and one from the back, so that all have as much to attend to.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor.experimental import _attention, context_parallel
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import pad

from ..core.choices import Rotation
from ..core.errors import InvalidInput
from ..interface.workload import Workload
from .batches import Batch
from .batches.text import IGNORED

KERNELS = [
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.CUDNN_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
]
"""Backends that support ring attention: they return what is needed to merge their parts."""

NOT_ON_A_CPU = "PyTorch's ring attention does not run on a CPU; choose a GPU, or leave it at 1"

_ROTATIONS = {
    Rotation.ALL_GATHER: _attention._RotateMethod.ALL_GATHER,
    Rotation.ALL_TO_ALL: _attention._RotateMethod.ALL_TO_ALL,
}


class Context:
    """The group of GPUs that have parts of the same sequences.

    Args:
        workload: Their number, and how they exchange keys and values.
        model: Model whose sequences are divided.

    Raises:
        InvalidInput: If its attention is not plainly causal.
    """

    def __init__(self, workload: Workload, model: torch.nn.Module) -> None:
        _check_attention(model)
        self._rotation = _ROTATIONS[workload.context_rotation]
        self._mesh = _group(workload, next(model.parameters()).device.type)

    @contextmanager
    def divided(self, inputs: Batch) -> Iterator[None]:
        """Give this GPU its part of each sequence, forward and backward.

        Args:
            inputs: Inputs of one micro-batch, on the device. Its tensors become parts, and those
                are added that a model makes of the whole sequence: positions and the next tokens.
        """
        inputs |= _seen_from_the_whole(inputs)
        buffers = list(inputs.values())
        with ExitStack() as stack:
            stack.enter_context(_rotating(self._rotation))
            stack.enter_context(sdpa_kernel(KERNELS))
            stack.enter_context(
                context_parallel(
                    self._mesh,
                    buffers=buffers,
                    buffer_seq_dims=[1] * len(buffers),
                    no_restore_buffers=set(buffers),
                )
            )
            yield


def _check_attention(model: torch.nn.Module) -> None:
    """Refuse what Accelerate and the Trainer refuse: windows, and other code than PyTorch's."""
    config: Any = next(one.config for one in model.modules() if hasattr(one, "config"))
    config = config.get_text_config()
    windows = getattr(config, "layer_types", None)
    if windows is None and getattr(config, "sliding_window", None):
        windows = ["sliding_attention"]
    others = sorted(set(windows or ()) - {"full_attention"})
    if config._attn_implementation != "sdpa":
        others.append(str(config._attn_implementation))
    if others:
        message = f"ring attention is causal only, and this model has {', '.join(others)}"
        raise InvalidInput({"context_parallel": f"{message}; leave it at 1"})


def _group(workload: Workload, device: str) -> DeviceMesh:
    count, within = workload.context_parallel, workload.tensor_parallel
    with unset_fake_temporarily():  # a mesh needs real values
        mesh = init_device_mesh(
            device,
            (workload.world_size // (count * within), count, within),
            mesh_dim_names=("data", "context", "tensor"),
        )
        return mesh["context"]


def _seen_from_the_whole(inputs: Batch) -> Batch:
    """As the Trainer makes them; the positions of a row are those of every row."""
    ids, labels = inputs["input_ids"], inputs["labels"]
    positions = torch.arange(ids.shape[1], device=ids.device).expand(len(ids), -1)
    following = pad(labels, (0, 1), value=IGNORED)[:, 1:].contiguous()
    return {"shift_labels": following, "position_ids": positions.contiguous()}


@contextmanager
def _rotating(method: _attention._RotateMethod) -> Iterator[None]:
    """Choose how keys and values go around, which is global in PyTorch."""
    options = _attention._cp_options
    before, options.rotate_method = options.rotate_method, method
    try:
        yield
    finally:
        options.rotate_method = before
