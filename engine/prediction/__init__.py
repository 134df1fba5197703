"""Trials without a GPU: memory and time from a trace, with their ranges."""
