"""Tensors that DeepSpeed's ZeRO keeps on the host where its optimizer runs there, and copies.

From its source, 0.19.6 (deepspeed/runtime/zero/stage_1_and_2.py and stage3.py): the fp32 weights,
their gradients and the state of ``DeepSpeedCPUAdam`` are on the host, 16 bytes for each weight of a
GPU's part. Stages 1 and 2 keep a copy of the new weights in bf16 there, stage 3 the gradients.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from .group_recorder import own_part
from .offload import Host


class HostPartition:
    """The host's part of gradients and weights, for one GPU.

    It is made while what is made of nothing is on the host.

    Args:
        host: The host.
        master: The fp32 weights there; they get a gradient.
        scratch: With stages 1 and 2, room for the largest gradient, on the GPU.
        gpus: Number of GPUs that divide gradients.
        adds_up: Whether gradients of several micro-batches are added up here.
        weights_stay: Whether the weights are here too.
    """

    def __init__(
        self,
        host: Host,
        master: torch.nn.Parameter,
        scratch: torch.Tensor | None,
        *,
        gpus: int,
        adds_up: bool,
        weights_stay: bool,
    ) -> None:
        self._host = host
        self._master = master
        self._scratch = scratch
        self._weights_stay = weights_stay
        self._share = gpus if scratch is not None else 1
        self._adds_up = adds_up
        self._gradient = torch.empty_like(master)
        self._low = torch.empty_like(master, dtype=torch.bfloat16)
        self._sums = self._low
        if scratch is not None:
            self._room = self._low.new_empty(scratch.numel())
            if self._adds_up:
                self._sums = torch.empty_like(self._low)
        master.grad = self._gradient

    def take(self, gradient: torch.Tensor) -> None:
        """Copy a reduced gradient to the host, in fp32 unless more micro-batches are to come.

        Stage 3 sends a shard there in bf16 and back first, to add up and convert it on the GPU.
        The other stages fetch what was added up so far, here for the first micro-batch too.

        Args:
            gradient: Flat; of stages 1 and 2 a whole one, of which this GPU has a share.
        """
        part = self._own(gradient)
        if self._scratch is None or self._adds_up:
            sums = self._sums[: part.numel()]
            self._host.copy(part, sums, "host")
            if self._scratch is None:
                gradient = self._host.copied(sums, "device")
            else:
                self._host.copy(sums, self._scratch[: part.numel()], "device")
        if not self._adds_up:
            self._convert(gradient)

    def finish(self, parameters: Iterable[torch.Tensor]) -> None:
        """Send what was added up over micro-batches in fp32, one parameter after the other."""
        if self._adds_up:
            for parameter in parameters:
                weight = own_part(parameter).detach()
                count = weight.numel()
                self._convert(torch.empty(count, dtype=weight.dtype, device=weight.device))

    def send_weights(self, parameters: Iterable[torch.Tensor]) -> None:
        """Copy the updated weights to the GPU, which waits; or into those that stay here."""
        for parameter in parameters:
            weight = self._own(own_part(parameter).detach().view(-1))
            updated = self._master.detach()[: weight.numel()]
            if self._weights_stay:
                weight.copy_(updated)
            elif self._scratch is None:
                self._host.copy(updated.to(weight.dtype), weight, "device", waits=True)
            else:
                low = self._low[: weight.numel()].copy_(updated)
                self._host.copy(low, weight, "device", waits=True)

    def _own(self, tensor: torch.Tensor) -> torch.Tensor:
        """This GPU's share of a flat tensor."""
        return tensor[: min(tensor.numel() // self._share, self._master.numel())]

    def _convert(self, gradient: torch.Tensor) -> None:
        """Copy to the host in fp32, made on the GPU: of a whole gradient on the worst of them."""
        own = self._own(gradient.to(torch.float32))
        self._host.copy(own, self._gradient[: own.numel()], "host")
