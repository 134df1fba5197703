"""Each pool splits, joins and frees blocks at exactly the sizes of PyTorch's rules."""

from __future__ import annotations

from itertools import permutations

import pytest

from engine.allocator.pools import ExpandablePool, Pool, UnsplitPool, may_serve, segment_bytes

KIB = 1024
MIB = 1024 * KIB


@pytest.mark.parametrize(
    ("rounded", "segment"),
    [
        (512, 2_097_152),
        (1_048_576, 2_097_152),
        (1_048_576 + 512, 20_971_520),
        (10_485_760 - 512, 20_971_520),
        (10_485_760, 10_485_760),
        (10_485_760 + 512, 12_582_912),
        (12_582_912, 12_582_912),
        (20_971_520 + 512, 23_068_672),
    ],
)
def test_the_size_of_a_new_segment_follows_from_the_request(rounded: int, segment: int) -> None:
    assert segment_bytes(rounded) == segment


# --- Segments of fixed size --------------------------------------------------------------------

START = 4096


def joined(pool: Pool, sizes: list[int]) -> list[int]:
    """The addresses of blocks cut from one segment, one after the other."""
    first, _ = pool.grow(sizes[0], None) or (0, 0)
    return [first, *((pool.take(size) or (0, 0))[0] for size in sizes[1:])]


def test_a_block_is_cut_from_the_low_end_of_its_segment() -> None:
    pool = Pool(START, 512)
    assert pool.grow(MIB + 512, None) == (START, MIB + 512)
    assert pool.free_blocks() == {START + MIB + 512: 19 * MIB - 512}
    assert pool.take(3 * MIB) == (START + MIB + 512, 3 * MIB)
    assert pool.free_blocks() == {START + 4 * MIB + 512: 16 * MIB - 512}
    assert pool.held_bytes == 20 * MIB


def test_segments_are_never_adjacent() -> None:
    pool = Pool(START, 512)
    blocks = [pool.grow(size * MIB, None) for size in (10, 12, 14)]
    assert blocks == [
        (START, 10 * MIB),
        (START + 10 * MIB + 512, 12 * MIB),
        (START + 22 * MIB + 1024, 14 * MIB),
    ]
    for start, size in [block for block in blocks if block]:
        pool.give(start, size)
    assert pool.free_blocks() == dict(block for block in blocks if block)
    assert pool.held_bytes == 36 * MIB


def test_a_block_is_split_from_the_smallest_remainder_on() -> None:
    pool = Pool(START, 2048)
    pool.grow(MIB, None)  # of 2 MiB
    assert pool.take(MIB - 2048) == (START + MIB, MIB - 2048)
    assert pool.free_blocks() == {START + 2 * MIB - 2048: 2048}
    assert pool.take(512) == (START + 2 * MIB - 2048, 2048)  # 1536 would be left
    assert pool.take(512) is None


def test_there_must_be_room_for_the_whole_segment() -> None:
    pool = Pool(START, 512)
    assert pool.grow(MIB + 512, 20 * MIB - 1) is None
    assert (pool.held_bytes, pool.free_blocks()) == (0, {})
    assert pool.grow(MIB + 512, 20 * MIB) == (START, MIB + 512)


def test_the_smallest_sufficient_block_is_used_and_of_equals_the_lowest() -> None:
    pool = Pool(START, 512)
    sizes = [size * KIB for size in (300, 1, 200, 1, 100, 1, 200, 1)]
    addresses = joined(pool, sizes)
    for number in (6, 4, 2, 0):
        pool.give(addresses[number], sizes[number])
    assert pool.take(200 * KIB) == (addresses[2], 200 * KIB)
    assert pool.take(100 * KIB + 512) == (addresses[6], 100 * KIB + 512)
    assert pool.take(100 * KIB) == (addresses[4], 100 * KIB)
    assert pool.take(512) == (addresses[6] + 100 * KIB + 512, 512)
    assert pool.take(250 * KIB) == (addresses[0], 250 * KIB)


@pytest.mark.parametrize("order", list(permutations((1, 2, 3))))
def test_a_freed_block_joins_both_its_neighbours(order: tuple[int, ...]) -> None:
    pool = Pool(START, 512)
    sizes = [1024, 512, 2048, 1536, 1024]
    addresses = joined(pool, sizes)
    behind = addresses[4] + 1024
    for number in order:
        pool.give(addresses[number], sizes[number])
    assert pool.free_blocks() == {addresses[1]: 4096, behind: START + 2 * MIB - behind}
    assert pool.take(4096) == (addresses[1], 4096)
    assert pool.free_blocks() == {behind: START + 2 * MIB - behind}


def test_only_segments_without_a_used_block_are_freed() -> None:
    pool = Pool(START, 512)
    addresses = joined(pool, [MIB + 512, 4 * MIB, 15 * MIB - 512])
    alone, _ = pool.grow(12 * MIB, None) or (0, 0)
    pool.give(alone, 12 * MIB)
    pool.give(addresses[0], MIB + 512)  # at the start of its segment, but not all of it
    pool.give(addresses[2], 15 * MIB - 512)
    pool.release()
    assert pool.held_bytes == 20 * MIB
    assert pool.free_blocks() == {addresses[0]: MIB + 512, addresses[2]: 15 * MIB - 512}
    pool.give(addresses[1], 4 * MIB)
    pool.release()
    assert (pool.held_bytes, pool.free_blocks()) == (0, {})
    assert pool.take(512) is None
    pool.release()
    assert pool.held_bytes == 0


def test_without_a_split_limit_nothing_is_freed_for_one_request() -> None:
    pool = Pool(START, 512)
    pool.give(*(pool.grow(10 * MIB, None) or (0, 0)))
    assert not pool.release_for(MIB)
    assert pool.held_bytes == 10 * MIB


# --- Blocks that are not split from a size on --------------------------------------------------


@pytest.mark.parametrize(
    ("size", "rounded", "serves"),
    [
        (30 * MIB - 512, 512, True),
        (30 * MIB, 512, False),
        (30 * MIB, 30 * MIB - 512, False),
        (30 * MIB, 30 * MIB, True),
        (50 * MIB - 512, 30 * MIB, True),
        (50 * MIB, 30 * MIB, False),
        (51 * MIB, 31 * MIB + 512, True),
    ],
)
def test_an_unsplit_block_serves_requests_less_than_20_mib_below_its_size(
    size: int, rounded: int, serves: bool
) -> None:
    assert may_serve(size, rounded, 30 * MIB) is serves


def unsplit(*mebibytes: int) -> UnsplitPool:
    """A pool whose blocks are not split from 30 MiB on, with a free segment of each size."""
    pool = UnsplitPool(START, MIB + 512, 30 * MIB)
    blocks = [pool.grow(size * MIB, None) for size in mebibytes]
    for start, size in [block for block in blocks if block]:
        pool.give(start, size)
    return pool


def free_mebibytes(pool: Pool) -> list[int]:
    return [size // MIB for _, size in sorted(pool.free_blocks().items())]


def test_requests_from_the_largest_split_size_on_take_blocks_whole() -> None:
    pool = unsplit(40)
    assert pool.take(30 * MIB) == (START, 40 * MIB)
    assert pool.free_blocks() == {}
    assert pool.take(30 * MIB) is None
    assert pool.grow(30 * MIB + 512, None) == (START + 40 * MIB + 512, 32 * MIB)


def test_requests_below_the_largest_split_size_split_smaller_blocks_only() -> None:
    pool = unsplit(28, 40)
    assert pool.take(30 * MIB - 512) is None
    assert pool.take(20 * MIB) == (START, 20 * MIB)
    assert pool.take(20 * MIB) is None
    assert free_mebibytes(pool) == [8, 40]


def test_the_smallest_sufficient_unsplit_block_is_freed() -> None:
    for rounded, left in ((36 * MIB, [50, 30]), (36 * MIB + 512, [36, 30]), (MIB, [50, 36])):
        pool = unsplit(50, 36, 30)
        assert pool.release_for(rounded)
        assert free_mebibytes(pool) == left
        assert pool.held_bytes == sum(left) * MIB


def test_without_a_sufficient_block_the_largest_are_freed_until_there_is_enough() -> None:
    pool = unsplit(30, 50, 40, 28)
    assert pool.release_for(90 * MIB)
    assert free_mebibytes(pool) == [30, 28]
    pool = unsplit(30, 50, 40, 28)
    assert pool.release_for(90 * MIB + 512)
    assert free_mebibytes(pool) == [28]


def test_blocks_below_the_largest_split_size_are_not_freed_for_one_request() -> None:
    pool = unsplit(30, 40, 28)
    assert not pool.release_for(70 * MIB + 512)
    assert (free_mebibytes(pool), pool.held_bytes) == ([28], 28 * MIB)
    assert not pool.release_for(MIB)
    assert pool.held_bytes == 28 * MIB
    empty = unsplit()
    assert not empty.release_for(MIB)


# --- Segments that grow by pages ---------------------------------------------------------------

BASE = 512
PAGE = 4096


def pages(*sizes: int, max_split: int | None = None) -> tuple[ExpandablePool, list[int]]:
    """A pool of small pages with blocks that lie one after the other, and their addresses."""
    pool = ExpandablePool(BASE, PAGE, max_split)
    addresses = [(pool.grow(size, None) or (0, 0))[0] for size in sizes]
    assert addresses == [BASE + sum(sizes[:number]) for number in range(len(sizes))]
    return pool, addresses


def test_only_the_missing_pages_of_a_block_are_mapped() -> None:
    pool, _ = pages(512)
    assert (pool.held_bytes, pool.free_blocks()) == (PAGE, {1024: 3584})
    assert pool.grow(8192, None) == (1024, 8192)  # 3584 were free, 4608 take two pages
    assert (pool.held_bytes, pool.free_blocks()) == (3 * PAGE, {9216: 3584})
    assert pool.grow(3584 + PAGE, None) == (9216, 3584 + PAGE)
    assert (pool.held_bytes, pool.free_blocks()) == (4 * PAGE, {})


def test_a_sufficient_free_block_needs_no_new_page() -> None:
    pool, _ = pages(512)
    assert pool.take(4096) is None
    assert pool.take(3072) == (1024, 3072)
    assert pool.take(512) == (4096, 512)
    assert (pool.held_bytes, pool.free_blocks()) == (PAGE, {})
    assert pool.take(512) is None


def test_there_must_be_room_for_every_page() -> None:
    pool, _ = pages()
    assert pool.grow(PAGE + 512, 2 * PAGE - 1) is None
    assert (pool.held_bytes, pool.free_blocks()) == (0, {})
    assert pool.grow(PAGE + 512, 2 * PAGE) == (BASE, PAGE + 512)


def test_pages_in_the_middle_of_a_free_block_are_unmapped_and_its_ends_stay() -> None:
    pool, (_, middle, last) = pages(512, 12_288, 512)
    pool.give(middle, 12_288)
    pool.release()
    assert pool.held_bytes == 2 * PAGE
    assert pool.free_blocks() == {1024: 3584, 12_800: 512, last + 512: 3072}
    assert pool.grow(12_288, None) == (1024, 12_288)  # both ends, and everything in between again
    assert pool.held_bytes == 4 * PAGE
    assert pool.free_blocks() == {last + 512: 3072}


def test_whole_pages_leave_nothing_behind() -> None:
    pool, (_, middle, last) = pages(PAGE, 2 * PAGE, PAGE)
    pool.give(middle, 2 * PAGE)
    pool.release()
    assert (pool.held_bytes, pool.free_blocks()) == (2 * PAGE, {})
    pool.give(last, PAGE)
    pool.release()
    assert (pool.held_bytes, pool.free_blocks()) == (PAGE, {})
    assert pool.grow(4 * PAGE, None) == (middle, 4 * PAGE)


def test_a_page_with_a_used_block_stays_mapped() -> None:
    pool, (_, middle, _) = pages(512, PAGE, 3584)  # the free block lies on both pages
    pool.give(middle, PAGE)
    pool.release()
    assert (pool.held_bytes, pool.free_blocks()) == (2 * PAGE, {middle: PAGE})


def test_an_unmapped_end_grows_again_from_its_start() -> None:
    pool, (first,) = pages(3 * PAGE)
    pool.give(first, 3 * PAGE)
    pool.release()
    assert (pool.held_bytes, pool.free_blocks()) == (0, {})
    assert pool.grow(512, None) == (BASE, 512)
    assert (pool.held_bytes, pool.free_blocks()) == (PAGE, {1024: 3584})


def test_a_hole_is_filled_from_its_low_end() -> None:
    pool, (_, middle, last) = pages(PAGE, 3 * PAGE, PAGE)
    pool.give(middle, 3 * PAGE)
    pool.release()
    assert pool.grow(512, None) == (middle, 512)
    assert (pool.held_bytes, pool.free_blocks()) == (3 * PAGE, {middle + 512: 3584})
    assert pool.grow(PAGE, None) == (middle + 512, PAGE)
    assert pool.grow(PAGE + 3072, None) == (middle + PAGE + 512, PAGE + 3072)
    assert (pool.held_bytes, pool.free_blocks()) == (5 * PAGE, {middle + 3 * PAGE - 512: 512})
    assert pool.grow(PAGE, None) == (last + PAGE, PAGE)


def test_a_hole_that_is_too_small_is_skipped() -> None:
    pool, (_, hole, _, wide, last) = pages(PAGE, PAGE, PAGE, 2 * PAGE, PAGE)
    pool.give(wide, 2 * PAGE)
    pool.give(hole, PAGE)
    pool.release()
    assert pool.grow(2 * PAGE + 512, None) == (last + PAGE, 2 * PAGE + 512)
    assert pool.grow(PAGE + 512, None) == (wide, PAGE + 512)
    assert pool.grow(PAGE, None) == (hole, PAGE)


def test_the_lowest_hole_is_filled_first() -> None:
    pool, (_, low, _, high, _) = pages(PAGE, 2 * PAGE, PAGE, PAGE, PAGE)
    pool.give(low, 2 * PAGE)
    pool.give(high, PAGE)
    pool.release()
    for address in (low, low + PAGE, high):
        assert pool.grow(PAGE, None) == (address, PAGE)


def test_adjacent_holes_are_joined() -> None:
    pool, (_, end, first, second, _, between, _) = pages(
        3072, 1024, PAGE, PAGE, 512, 1536 + PAGE, 2048
    )
    for hole in (second, first):
        pool.give(hole, PAGE)
        pool.release()
    pool.give(end, 1024)
    pool.give(between, 1536 + PAGE)
    # Two pages can be mapped behind the first free block, and none behind the second, which is
    # larger than the first with only one of them.
    assert pool.take(1024) == (between, 1024)
    assert pool.grow(1024 + 2 * PAGE, None) == (end, 1024 + 2 * PAGE)


def test_pages_stay_mapped_when_there_is_no_room_for_the_rest() -> None:
    def two_gaps() -> ExpandablePool:
        """A page, a hole of one page, a free page, and nothing after it."""
        pool, (_, hole, end) = pages(PAGE, PAGE, 512)
        pool.give(hole, PAGE)
        pool.release()
        pool.give(end, 512)
        return pool

    assert two_gaps().free_blocks() == {BASE + 2 * PAGE: PAGE}
    short = two_gaps()
    assert short.grow(3 * PAGE, 2 * PAGE - 1) is None
    assert (short.held_bytes, short.free_blocks()) == (3 * PAGE, {BASE + PAGE: 2 * PAGE})
    enough = two_gaps()
    assert enough.grow(3 * PAGE, 2 * PAGE) == (BASE + PAGE, 3 * PAGE)
    assert (enough.held_bytes, enough.free_blocks()) == (4 * PAGE, {})


def test_the_block_with_less_to_map_behind_it_is_used() -> None:
    pool, (_, before_hole, _, larger, _) = pages(3072, 1024 + PAGE, 1024, 1536, 1536)
    pool.give(before_hole, 1024 + PAGE)
    pool.release()
    pool.give(larger, 1536)
    assert pool.free_blocks() == {before_hole: 1024, larger: 1536}
    assert pool.take(1024) == (larger, 1024)
    assert pool.take(1024) == (before_hole, 1024)


def test_a_larger_block_must_have_strictly_less_behind_it() -> None:
    pool, (_, before_hole, _, larger, _) = pages(3072, 1024 + PAGE, 1024, 1024 + PAGE, 2048)
    pool.give(before_hole, 1024 + PAGE)
    pool.release()
    pool.give(larger, 1024 + PAGE)
    assert pool.take(1024) == (before_hole, 1024)


def test_the_first_block_that_reaches_no_further_than_the_next_is_used() -> None:
    sizes = (3072, 1024 + 2 * PAGE, 2560, 1536 + 2 * PAGE, 512, 2048, 1536)
    pool, (_, one, _, two, _, three, _) = pages(*sizes)
    pool.give(one, sizes[1])
    pool.give(two, sizes[3])
    pool.release()
    pool.give(three, 2048)
    assert pool.free_blocks() == {one: 1024, two: 1536, three: 2048}
    assert pool.take(1536) == (three, 1536)
    pool.give(three, 1536)
    assert pool.take(1024) == (one, 1024)


def test_the_end_of_the_range_is_the_last_choice() -> None:
    pool, (_, inner, _) = pages(1024, 1536, 512)
    pool.give(inner, 1536)
    assert pool.free_blocks() == {1536: 1536, 3584: 1024}
    assert pool.take(512) == (inner, 512)
    assert pool.take(1024) == (inner + 512, 1024)
    assert pool.take(1024) == (3584, 1024)


def test_a_free_block_of_the_largest_split_size_is_not_used_for_smaller_requests() -> None:
    for max_split, block in ((PAGE, None), (PAGE + 512, (BASE, 512))):
        pool, (first, _) = pages(PAGE, PAGE, max_split=max_split)
        pool.give(first, PAGE)
        assert pool.take(512) == block
    pool, (first, _) = pages(PAGE, PAGE, max_split=PAGE)
    pool.give(first, PAGE)
    assert pool.grow(PAGE, None) == (BASE + 2 * PAGE, PAGE)
    assert pool.take(PAGE) == (BASE, PAGE)
