"""The map of GPUs: cost against speed, and who is beaten by nobody in both."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from analyses.charts.gpu_map import HEIGHT, LEFT, RIGHT, GpuMap, Prices, frontier_of, gpu_maps
from analyses.pages.analysis.gpu_rows import GpuRow


def row(
    name: str,
    speed: float,
    cost: float,
    *,
    current: bool = False,
    may_not_fit: bool = False,
    why_not: str = "",
    spot: float | None = None,
    date: str = "2026-05-07",
) -> GpuRow:
    return GpuRow(
        gpu=name.lower(),
        name=f"NVIDIA {name}",
        form_query=f"gpu={name}",
        why_not=why_not,
        total_bytes=2**34,
        is_current=current,
        may_not_fit=may_not_fit,
        price_per_hour_usd=1.0,
        price_date=date,
        spot_price_per_hour_usd=spot,
        spot_price_date="2026-10-04",
        spot_usd_per_million_samples=cost * (spot or 0),
        samples_per_second=speed,
        usd_per_million_samples=cost,
    )


def maps(rows: list[GpuRow]) -> dict[Prices, GpuMap]:
    drawn = gpu_maps(rows, [one.at_spot_price for one in rows])
    return {one.prices: one for one in drawn}


def test_the_frontier_has_those_that_none_beats_in_both() -> None:
    rows = [row("A", 100, 2.0), row("B", 200, 1.0), row("C", 50, 0.5), row("D", 40, 0.9)]
    assert [one.name for one in frontier_of(rows)] == ["NVIDIA B", "NVIDIA C"]


def test_the_line_is_of_those_that_surely_fit_if_any_does() -> None:
    cheap = row("A", 50, 0.5, may_not_fit=True)
    found = maps([cheap, row("B", 200, 2.0), row("C", 100, 1.0)])[Prices.ON_DEMAND]
    best = {dot.name for dot in found.dots if dot.is_best}
    assert best == {"NVIDIA B", "NVIDIA C"}
    assert "Of those that surely fit, none beats these" in found.description
    assert found.has_hollow_dots
    (hollow,) = (dot for dot in found.dots if dot.may_not_fit)
    assert hollow.title.endswith(", may not fit")
    none = maps([cheap, row("D", 60, 0.6, may_not_fit=True)])[Prices.ON_DEMAND]
    assert {dot.name for dot in none.dots if dot.is_best} == {"NVIDIA A", "NVIDIA D"}


NUMBERS = st.floats(1e-3, 1e6)


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=2, max_size=30))
def test_every_dot_is_on_the_map(values: list[tuple[float, float]]) -> None:
    rows = [row(str(index), speed, cost, spot=0.4) for index, (speed, cost) in enumerate(values)]
    found = maps(rows)
    assert len(found) == 2
    for one in found.values():
        assert len(one.dots) == len(rows)
        for dot in one.dots:
            assert LEFT <= dot.x <= RIGHT
            assert 0 <= dot.y <= HEIGHT
    assert len(found[Prices.ON_DEMAND].frontier) == len(frontier_of(rows)) - 1


def test_yours_is_named_and_the_others_lead_to_the_form() -> None:
    near = [row("B", 100.1, 2.001), row("D", 100.2, 2.002)]
    found = maps([row("A", 100, 2.0, current=True), *near, row("C", 9, 9)])
    dots = {dot.name: dot for dot in found[Prices.ON_DEMAND].dots}
    assert dots["NVIDIA A"].label == "A"
    labels = [dots[one.name].label for one in near]
    assert labels.count("") == 1  # only one more finds room, on the other side
    assert dots["NVIDIA B"].anchor != dots["NVIDIA A"].anchor
    assert dots["NVIDIA A"].form_query == ""
    assert dots["NVIDIA C"].form_query == "gpu=C"


def test_what_is_not_on_the_map_is_listed_with_the_reason() -> None:
    rows = [
        row("A", 100, 2.0, spot=0.5),
        row("B", 200, 1.0, spot=0.5),
        row("C", 0, 0, why_not="batch 8 needs 30.0 GiB", spot=0.5),
        row("D", 50, 4.0),
        row("E", 50, 0.0, spot=0.5),  # an admin set its price to 0, which no log scale has
    ]
    found = maps(rows)
    listed = {prices: [(gpu.name, gpu.why) for gpu in one.missing] for prices, one in found.items()}
    assert listed[Prices.ON_DEMAND] == [("C", "batch 8 needs 30.0 GiB"), ("E", "its price is $0")]
    assert listed[Prices.SPOT][:2] == [
        ("C", "batch 8 needs 30.0 GiB"),
        ("D", "no dated spot price is known"),
    ]
    assert [dot.name for dot in found[Prices.ON_DEMAND].dots] == [
        "NVIDIA B",
        "NVIDIA A",
        "NVIDIA D",
    ]


def test_both_maps_have_the_same_scales_and_their_own_prices() -> None:
    found = maps([row("A", 100, 2.0, spot=0.5), row("B", 200, 1.0, spot=0.9), row("C", 50, 3.0)])
    assert found[Prices.ON_DEMAND].ticks_x == found[Prices.SPOT].ticks_x
    assert found[Prices.ON_DEMAND].ticks_y == found[Prices.SPOT].ticks_y
    before, after = ({dot.name: dot for dot in one.dots}["NVIDIA A"] for one in found.values())
    assert after.x == before.x
    assert after.y > before.y  # cheaper
    assert "$1.00 per GPU-hour (assumed, 2026-10-04)" not in after.title
    assert "$1.00 per million at $0.50 per GPU-hour (assumed, 2026-10-04)" in after.title
    assert found[Prices.SPOT].dates == "2026-10-04"


def test_a_map_says_when_its_prices_held() -> None:
    rows = [row("A", 9, 2.0, date="2026-11"), row("B", 8, 1.0), row("C", 7, 0.5, date="")]
    found = maps(rows)
    assert list(found) == [Prices.ON_DEMAND]  # no spot price, no map of them
    assert found[Prices.ON_DEMAND].dates == "2026-05-07 to 2026-11, 1 of unknown date"


def test_one_gpu_makes_no_map() -> None:
    assert maps([row("A", 100, 2.0, spot=1.0)]) == {}
