"""A model of PyTorch's CUDA caching allocator: its pools, its options.

It replays the allocations and frees of a trace, and says what is reserved for them.
"""
