"""Memory and work of the host where a step offloads to it, and its assumed speed."""

from __future__ import annotations

from collections.abc import Iterable

from ...core.numbers import ms
from ...core.sizes import gib
from ...tracing.trace import COPY, ON_HOST, TOKEN, WAITING_COPY, Operation, Trace

LINK_BYTES_PER_SECOND = 0.75 * 31.5e9
"""Assumed of copies between the GPU and pinned memory of the host: three quarters of PCIe 4.0 with
16 lanes (16 GT/s a lane in code of 128 of 130 bits)."""
MEMORY_BYTES_PER_SECOND = 20e9
"""Assumed of an optimizer that runs on the host, whose memory several GPUs share."""


def offload_caveats(step: Trace) -> list[str]:
    """Caveats on the memory and work of the host, where a step offloads to it."""
    if not step.host_bytes:
        return []
    copied = dict.fromkeys((COPY, WAITING_COPY), 0)
    computes = False
    for operation in step.operations:
        if operation.name in copied:
            copied[operation.name] += operation.bytes_moved
        computes = computes or operation.name.startswith(ON_HOST)
    rate = f"at an assumed {LINK_BYTES_PER_SECOND / 1e9:,.0f} GB/s (PCIe 4.0)"
    found = [
        f"The host holds {gib(step.host_bytes)} for each GPU (predicted), and more where pinned "
        "memory is rounded up."
    ]
    if copied[COPY]:
        found.append(f"A step copies {gib(copied[COPY])} {rate}, hidden behind computation.")
    if copied[WAITING_COPY]:
        seconds = copied[WAITING_COPY] / LINK_BYTES_PER_SECOND
        found.append(
            f"A step copies {gib(copied[WAITING_COPY])} {rate}, and the GPU waits for it: "
            f"{seconds:,.3g} s."
        )
    if computes:
        memory = MEMORY_BYTES_PER_SECOND / 1e9
        found.append(f"The optimizer on the host is assumed to move {memory:,.0f} GB/s.")
    return [f"{' '.join(found)} Machines differ much."]


def copied_bytes(operations: Iterable[Operation]) -> int:
    """Bytes that the last token read copies to the host, where its cache is offloaded."""
    tokens = [one for one in operations if one.phase.startswith(TOKEN)]
    return sum(
        one.bytes_moved
        for one in tokens
        if one.name == WAITING_COPY and one.phase == tokens[-1].phase
    )


def offloaded_cache_caveat(held: int, copied: int) -> str:
    """Caveat on host memory and link traffic of an offloaded cache.

    Args:
        held: Bytes on the host.
        copied: Bytes to the host for the last token.
    """
    return (
        f"The host holds {gib(held)} of keys and values (predicted), and more where pinned memory "
        f"is rounded up. The last token copies {gib(copied)} to it between the kernels, and as "
        f"much back beside them: {ms(copied / LINK_BYTES_PER_SECOND)} each way at an "
        f"assumed {LINK_BYTES_PER_SECOND / 1e9:,.0f} GB/s (PCIe 4.0). Machines differ much."
    )
