"""The page says whether the lab's nodes have the host memory that an answer needs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from django.utils import timezone

from analyses.models import Node
from analyses.pages.analysis.host_memory import beside_nodes
from analyses.tests.factories import make_result
from engine.core.sizes import GIB
from engine.interface.result import Phase, PhaseName
from engine.interface.trial import Source

pytestmark = [pytest.mark.database, pytest.mark.django_db]

NEEDED = replace(
    make_result(),
    phases=[Phase(PhaseName.LOADING, GIB, 8 * GIB, 8, Source.COMPUTED, "All are read.")],
)


def add_node(name: str, gpu: str, memory: int | None) -> None:
    Node.objects.create(
        name=name,
        gpu_name=gpu,
        gpu_total_bytes=22 * GIB if gpu else None,
        memory_bytes=memory,
        heartbeat_at=timezone.now(),
    )


@pytest.mark.parametrize(
    ("memories", "expected"),
    [
        ([128], "Your lab's nodes with this GPU have 128.00 GiB or more."),
        ([64], "Your lab's nodes with this GPU have 64.00 GiB or more."),
        ([32, 63], "No node of your lab with this GPU has that much: 63.00 GiB at most."),
        ([32, 64], "Not every node of your lab with this GPU has that much: 32.00 GiB to 64.00"),
        ([], ""),
    ],
)
def test_it_is_held_against_all_processes_of_a_node(memories: list[int], expected: str) -> None:
    for number, memory in enumerate(memories):
        add_node(f"node{number}", "NVIDIA A10", memory * GIB)
    said = beside_nodes(NEEDED, "a10")
    assert said.startswith(expected)
    assert bool(said) == bool(expected)


def test_other_nodes_do_not_count() -> None:
    add_node("another", "NVIDIA H100 80GB HBM3", 16 * GIB)
    add_node("without a GPU", "", 16 * GIB)
    add_node("silent", "NVIDIA A10", None)
    assert beside_nodes(NEEDED, "a10") == ""


def test_an_answer_without_phases_needs_nothing_that_is_known() -> None:
    add_node("node", "NVIDIA A10", GIB)
    assert beside_nodes(replace(NEEDED, phases=[]), "a10") == ""
