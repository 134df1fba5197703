"""Holds the batches that we recommend against measured sweeps: ``python -m benchmarks.regret``."""
