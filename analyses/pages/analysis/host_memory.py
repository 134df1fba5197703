"""The host memory of an answer beside that of the lab's nodes with its GPU."""

from __future__ import annotations

from analyses.models import Node
from engine.answer.phases import most_on_host, on_a_node
from engine.core.sizes import gib
from engine.gpus import GPUS
from engine.gpus.names import catalogue_name
from engine.interface.result import AnalysisResult


def beside_nodes(result: AnalysisResult, gpu: str) -> str:
    """Whether the lab's nodes with a GPU have the host memory that an answer needs.

    Args:
        result: The answer; one without phases needs nothing that is known.
        gpu: The GPU of its analysis; where that is no catalogue GPU, the answer's counts.

    Returns:
        A sentence; empty where no node has that GPU, or none has reported its memory.
    """
    fullest = most_on_host(result.phases)
    wanted = gpu if gpu in GPUS else catalogue_name(result.gpu.name)
    if fullest is None or wanted is None:
        return ""
    reported = Node.objects.exclude(gpu_name="").filter(memory_bytes__isnull=False)
    rows = reported.values_list("gpu_name", "gpu_total_bytes", "memory_bytes")
    memories = [
        size for name, total, size in rows if size and catalogue_name(name, total) == wanted
    ]
    if not memories:
        return ""
    least, most = min(memories), max(memories)
    needed = on_a_node(fullest)
    if needed > most:
        return f"No node of your lab with this GPU has that much: {gib(most)} at most."
    if needed > least:
        return (
            f"Not every node of your lab with this GPU has that much: {gib(least)} to {gib(most)}."
        )
    return f"Your lab's nodes with this GPU have {gib(least)} or more."
