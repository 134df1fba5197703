"""The allocator's pool of each stream."""

from __future__ import annotations

from engine.allocator.caching import CachingAllocator


def test_a_stream_does_not_reuse_memory_freed_in_another() -> None:
    allocator = CachingAllocator()
    allocator.free(allocator.allocate(30 << 20))
    allocator.free(allocator.allocate(30 << 20, stream=1))
    assert allocator.reserved_bytes == 60 << 20
    allocator.allocate(30 << 20, stream=1)
    assert allocator.reserved_bytes == 60 << 20


def test_a_streams_cache_is_freed_for_another() -> None:
    allocator = CachingAllocator(capacity_bytes=40 << 20)
    allocator.free(allocator.allocate(30 << 20, stream=1))
    allocator.allocate(30 << 20)
    assert allocator.retries == 1
    assert allocator.reserved_bytes == 30 << 20
