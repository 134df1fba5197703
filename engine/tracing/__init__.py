"""Traces of the training step on fake tensors, with what CUDA would do."""
