"""Traces of the training step on fake tensors, with CUDA's behaviour.

A trace lists allocations, frees and operations, at one batch size and at every other.
"""
