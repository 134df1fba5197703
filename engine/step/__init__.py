"""The training step: its model without weights, its batch, its optimizer, and the step itself.

Written once: what the fake tensors trace is what the GPU runs.
"""
