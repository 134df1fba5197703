"""Predictions: memory and time from a trace, with their ranges.

For one batch size, for an analysis, and for a plan: the ladder of moves, and every GPU.
"""
