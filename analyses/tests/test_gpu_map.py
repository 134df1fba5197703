"""The map of GPUs: cost against speed, and who is beaten by nobody in both."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from analyses.charts.gpu_map import HEIGHT, LEFT, RIGHT, frontier_of, gpu_map
from analyses.pages.ladder import GpuRow


def row(
    name: str, speed: float, cost: float, *, current: bool = False, why_not: str = ""
) -> GpuRow:
    return GpuRow(
        gpu=name.lower(),
        name=f"NVIDIA {name}",
        form_query=f"gpu={name}",
        why_not=why_not,
        total_bytes=2**34,
        is_current=current,
        price_per_hour_usd=1.0,
        samples_per_second=speed,
        usd_per_million_samples=cost,
    )


def test_the_frontier_has_those_that_none_beats_in_both() -> None:
    rows = [row("A", 100, 2.0), row("B", 200, 1.0), row("C", 50, 0.5), row("D", 40, 0.9)]
    assert [one.name for one in frontier_of(rows)] == ["NVIDIA B", "NVIDIA C"]


NUMBERS = st.floats(1e-3, 1e6)


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=2, max_size=30))
def test_every_dot_is_on_the_map(values: list[tuple[float, float]]) -> None:
    rows = [row(str(index), speed, cost) for index, (speed, cost) in enumerate(values)]
    found = gpu_map(rows)
    assert found is not None
    assert len(found.dots) == len(rows)
    for dot in found.dots:
        assert LEFT <= dot.x <= RIGHT
        assert 0 <= dot.y <= HEIGHT
    assert len(found.frontier) == len(frontier_of(rows)) - 1


def test_yours_is_named_and_the_others_lead_to_the_form() -> None:
    found = gpu_map([row("A", 100, 2.0, current=True), row("B", 100.1, 2.001), row("C", 9, 9)])
    assert found is not None
    dots = {dot.name: dot for dot in found.dots}
    assert dots["NVIDIA A"].label == "A"
    assert dots["NVIDIA B"].label == ""  # no room beside yours
    assert dots["NVIDIA A"].form_query == ""
    assert dots["NVIDIA C"].form_query == "gpu=C"


def test_what_does_not_fit_is_counted_and_not_drawn() -> None:
    rows = [row("A", 100, 2.0), row("B", 200, 1.0), row("C", 0, 0, why_not="too large")]
    found = gpu_map(rows)
    assert found is not None
    assert (len(found.dots), found.fails) == (2, 1)
    assert gpu_map(rows[:1]) is None
