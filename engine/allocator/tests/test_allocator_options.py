"""The allocator's options work as PyTorch's do, and invalid ones are refused."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.allocator.caching import ALLOCATE, AllocatorOutOfMemory, CachingAllocator
from engine.allocator.options import AllocatorOptions
from engine.allocator.tests.test_allocator import CAPACITIES, STEPS, NaiveBlock, NaiveSegment
from engine.core.errors import InvalidInput
from engine.core.parsing import collect

MIB = 2**20


def allocator(conf: str, capacity: int | None = None) -> CachingAllocator:
    return CachingAllocator(capacity, AllocatorOptions.parse(conf))


# --- Reading the options ---------------------------------------------------------------------


def test_no_options_are_the_default() -> None:
    assert AllocatorOptions.parse("") == AllocatorOptions()


def test_options_are_read_as_pytorch_reads_them() -> None:
    conf = "expandable_segments:True, max_split_size_mb:128,roundup_power2_divisions:[2:4,>:8]"
    assert AllocatorOptions.parse(conf) == AllocatorOptions(
        expandable_segments=True,
        max_split_bytes=128 * MIB,
        roundup_power2_divisions=(4, 4, *[8] * 14),
    )


def test_divisions_apply_to_the_sizes_they_are_set_for() -> None:
    conf = "roundup_power2_divisions:[64:8,256:4,1024:4,>:1]"
    divisions = AllocatorOptions.parse(conf).roundup_power2_divisions
    assert divisions == (8, 8, 8, 8, 8, 8, 8, 0, 4, 0, 4, 1, 1, 1, 1, 1)
    assert (
        AllocatorOptions.parse("roundup_power2_divisions:4").roundup_power2_divisions == (4,) * 16
    )


@pytest.mark.parametrize(
    ("conf", "options"),
    [
        ("expandable_segments:False", AllocatorOptions()),
        ("expandable_segments:True", AllocatorOptions(expandable_segments=True)),
        ("max_split_size_mb:20", AllocatorOptions(max_split_bytes=20_971_520)),
        ("max_split_size_mb:1099511627776", AllocatorOptions(max_split_bytes=2**60)),
        (
            "garbage_collection_threshold:0.8,max_split_size_mb:21,backend:native",
            AllocatorOptions(max_split_bytes=22_020_096),
        ),
    ],
)
def test_each_option_is_checked_against_its_bounds(conf: str, options: AllocatorOptions) -> None:
    assert AllocatorOptions.parse(conf) == options


@pytest.mark.parametrize(
    ("divisions", "read"),
    [
        ("1", (1,) * 16),
        ("1048576", (1_048_576,) * 16),
        ("[>:8]", (8,) * 16),
        ("[1:2]", (2, *[0] * 15)),
        ("[1:2,>:8]", (2, *[8] * 15)),
        ("[4:0,8:2]", (0, 0, 0, 2, *[0] * 12)),
        ("[1:2,32768:4]", (2, *[0] * 14, 4)),
        ("[1:2,65536:4]", (2, *[0] * 14, 4)),
        ("[1:2,1048576:4]", (2, *[0] * 14, 4)),
    ],
)
def test_there_are_divisions_for_each_power_of_two_from_1_mib(
    divisions: str, read: tuple[int, ...]
) -> None:
    options = AllocatorOptions.parse(f"roundup_power2_divisions:{divisions}")
    assert options.roundup_power2_divisions == read


@pytest.mark.parametrize(
    "conf",
    [
        "garbage_collection_threshold:0.8",
        "backend:native",
        "pinned_use_background_threads:True,release_lock_on_cudamalloc:True",
    ],
)
def test_options_without_effect_on_the_peak_are_ignored(conf: str) -> None:
    assert AllocatorOptions.parse(conf) == AllocatorOptions()


@pytest.mark.parametrize(
    ("conf", "message"),
    [
        ("expandable_segments", "write name:value"),
        ("expandable_segments:True,", "write name:value"),
        ("expandable_segments:true", "takes True or False, not 'true'"),
        ("max_split_size_mb:19", "whole number from 20"),
        ("max_split_size_mb:many", "whole number from 20"),
        ("max_split_size_mb:1099511627777", "from 20 to 1,099,511,627,776"),
        ("roundup_power2_divisions:3", "3 is not a power of two"),
        ("roundup_power2_divisions:0", "whole number from 1"),
        ("roundup_power2_divisions:2097152", "from 1 to 1,048,576"),
        ("roundup_power2_divisions:[0:4]", "whole number from 1"),
        ("roundup_power2_divisions:[2:-1]", "whole number from 0"),
        ("roundup_power2_divisions:[256:4,>:8", "closing bracket"),
        ("roundup_power2_divisions:[]", "whole number"),
        ("roundup_power2_divisions:[300:4]", "300 is not a power of two"),
        ("roundup_power2_divisions:[256]", "whole number from 0"),
        ("backend:cudaMallocAsync", "only the native backend"),
        ("per_process_memory_fraction:0.5", "is not predicted; known options are"),
        ("x" * 600, "at most 500 characters"),
        ("max_split_size_mb:\x00", "at most 500 characters"),
    ],
)
def test_invalid_options_are_refused_with_what_to_do(conf: str, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        AllocatorOptions.parse(conf)
    assert list(caught.value.fields) == ["allocator"]
    assert message in caught.value.fields["allocator"]


@settings(deadline=None)
@given(st.text(alphabet="exroundmaxsplitsize_b:[],>0123456789TrueFalse ", max_size=80))
def test_any_text_gives_options_or_an_error_message(conf: str) -> None:
    wrong: dict[str, str] = {}
    collect(lambda: AllocatorOptions.parse(conf), wrong)
    assert wrong.keys() <= {"allocator"}


# --- roundup_power2_divisions ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("divisions", "size", "rounded"),
    [
        (4, 1200 * 1024, 1280 * 1024),  # between 1 and 2 MiB: 1024, 1280, 1536, 1792 KiB
        (4, 1280 * 1024, 1280 * 1024),
        (4, 2 * MIB, 2 * MIB),
        (4, 1800 * 1024, 2 * MIB),
        (8, 100, 512),
        (8, 4096, 4096),  # no more than 8 blocks: rounded to the next block
        (8, 3000, 3072),
        (8, 5000, 5120),
        (1, 1200 * 1024 + 1, 1200 * 1024 + 512),
    ],
)
def test_requests_round_up_to_a_division_of_a_power_of_two(
    divisions: int, size: int, rounded: int
) -> None:
    small = allocator(f"roundup_power2_divisions:{divisions}")
    small.allocate(size)
    assert small.allocated_bytes == rounded


@pytest.mark.parametrize(
    ("size", "rounded"),
    [
        (600_000, 786_432),  # below 1 MiB as above it: by half a power of two
        (MIB + 1, MIB + MIB // 2),
        (2 * MIB - 1, 2 * MIB),
        (2 * MIB + 1, 2 * MIB + 512),  # not divided
        (4 * MIB + 1, 4 * MIB + 512),  # one division: no rounding either
        (8 * MIB + 1, 9 * MIB),
        (2**35 - 1, 2**35),
        (2**35 + 1, 2**35 + 2**33),
        (2**36 + 1, 2**36 + 2**34),
    ],
)
def test_each_power_of_two_has_its_own_divisions(size: int, rounded: int) -> None:
    divisions = AllocatorOptions(roundup_power2_divisions=(2, 0, 1, *[8] * 12, 4))
    assert divisions.round_up(size, 512) == rounded


@settings(deadline=None)
@given(st.integers(1, 2**40), st.sampled_from([1, 2, 4, 8, 16, 64]))
def test_rounding_wastes_no_more_than_one_division(size: int, divisions: int) -> None:
    options = AllocatorOptions.parse(f"roundup_power2_divisions:{divisions}")
    rounded = options.round_up(size, 512)
    assert rounded >= size
    assert rounded % 512 == 0
    power = 2 ** (size.bit_length() - 1)
    assert rounded - size < max(512, power // divisions if divisions > 1 else 0)
    assert options.round_up(rounded, 512) == rounded


# --- max_split_size_mb -----------------------------------------------------------------------


def test_a_block_too_large_to_split_serves_no_small_request() -> None:
    limited = allocator("max_split_size_mb:32")
    limited.free(limited.allocate(64 * MIB))
    limited.allocate(16 * MIB)
    assert limited.reserved_bytes == 80 * MIB
    limited.allocate(48 * MIB)  # within 20 MiB of the 64 free: takes them all
    assert (limited.allocated_bytes, limited.reserved_bytes) == (80 * MIB, 80 * MIB)


def test_a_block_too_large_to_split_serves_only_requests_near_its_size() -> None:
    limited = allocator("max_split_size_mb:32")
    limited.free(limited.allocate(64 * MIB))
    limited.allocate(44 * MIB)
    assert limited.reserved_bytes == 108 * MIB


def test_only_what_is_needed_is_freed_and_that_is_no_retry() -> None:
    limited = allocator("max_split_size_mb:32", 120 * MIB)
    first, second = limited.allocate(40 * MIB), limited.allocate(60 * MIB)
    limited.free(first)
    limited.free(second)
    limited.allocate(30 * MIB)
    assert (limited.reserved_bytes, limited.retries) == (90 * MIB, 0)


@dataclass
class NaiveUnsplit:
    """Segments as plain lists of blocks, with a largest size that is split."""

    capacity: int | None
    max_split: int
    segments: list[NaiveSegment] = field(default_factory=list)
    retries: int = 0

    def reserved(self) -> int:
        return sum(block.size for segment in self.segments for block in segment.blocks)

    def allocated(self) -> int:
        return sum(b.size for segment in self.segments for b in segment.blocks if b.used)

    def allocate(self, size: int) -> NaiveBlock | None:
        size = -(-size // 512) * 512
        small = size <= MIB
        found = self.best(size, small)
        if found is None:
            wanted = 2 * MIB if small else max(20 * MIB, -(-size // 2**21) * 2**21)
            if 10 * MIB <= size < 20 * MIB:
                wanted = -(-size // 2**21) * 2**21
            served = self.has_room(wanted)
            if not served and self.give_some_back(size, small):
                served = self.has_room(wanted)
            if not served:
                self.retries += 1
                self.segments = [s for s in self.segments if any(b.used for b in s.blocks)]
                if not self.has_room(wanted):
                    return None
            block = NaiveBlock(wanted, used=False)
            found = NaiveSegment(small, [block]), block
            self.segments.append(found[0])
        segment, block = found
        left = block.size - size
        if left >= 512 if small else size < self.max_split and left > MIB:
            block.size = size
            segment.blocks.insert(segment.blocks.index(block) + 1, NaiveBlock(left, used=False))
        block.used = True
        return block

    def has_room(self, wanted: int) -> bool:
        return self.capacity is None or self.reserved() + wanted <= self.capacity

    def best(self, size: int, small: bool) -> tuple[NaiveSegment, NaiveBlock] | None:
        enough = [pair for pair in self.unused(small) if pair[1].size >= size]
        best = min(enough, key=lambda pair: pair[1].size, default=None)
        if best is None:
            return None
        if size < self.max_split <= best[1].size:
            return None
        if size >= self.max_split and best[1].size >= size + 20 * MIB:
            return None
        return best

    def unused(self, small: bool) -> list[tuple[NaiveSegment, NaiveBlock]]:
        own = [segment for segment in self.segments if segment.small == small]
        return [(segment, b) for segment in own for b in segment.blocks if not b.used]

    def give_some_back(self, size: int, small: bool) -> bool:
        wanted = max(size, self.max_split)
        blocks = sorted(self.unused(small), key=lambda pair: pair[1].size)
        enough = [pair for pair in blocks if pair[1].size >= wanted]
        if enough:
            self.segments.remove(enough[0][0])
            return True
        given = 0
        for segment, block in reversed(blocks):
            if given >= wanted or block.size < self.max_split:
                break
            self.segments.remove(segment)
            given += block.size
        return given >= wanted

    def free(self, freed: NaiveBlock) -> None:
        freed.used = False
        for segment in self.segments:
            joined: list[NaiveBlock] = []
            for block in segment.blocks:
                if joined and not joined[-1].used and not block.used:
                    joined[-1].size += block.size
                else:
                    joined.append(block)
            segment.blocks = joined


# --- Against slow models that follow the rules literally -------------------------------------


class SlowAllocator(Protocol):
    """A model that follows the rules literally."""

    retries: int

    def allocate(self, size: int) -> Any: ...
    def free(self, freed: Any) -> None: ...
    def allocated(self) -> int: ...
    def reserved(self) -> int: ...


def agree(fast: CachingAllocator, slow: SlowAllocator, steps: list[tuple[int, int]]) -> None:
    live: list[tuple[int, object]] = []
    for kind, number in steps:
        if kind == ALLOCATE:
            block = slow.allocate(number)
            if block is None:
                with pytest.raises(AllocatorOutOfMemory):
                    fast.allocate(number)
            else:
                live.append((fast.allocate(number), block))
        elif live:
            handle, block = live.pop(number % len(live))
            fast.free(handle)
            slow.free(block)
        assert fast.allocated_bytes == slow.allocated()
        assert fast.reserved_bytes == slow.reserved()
        assert fast.retries == slow.retries


@given(STEPS, CAPACITIES, st.integers(20, 40))
def test_unsplit_blocks_agree_with_the_slow_model(
    steps: list[tuple[int, int]], capacity: int | None, max_split_mib: int
) -> None:
    fast = allocator(f"max_split_size_mb:{max_split_mib}", capacity)
    agree(fast, NaiveUnsplit(capacity, max_split_mib * MIB), steps)
