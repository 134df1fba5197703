"""The time of a step, by kernels and launches, and the intervals of predictions."""
