"""Sources of traces, made as rarely as possible, since tracing takes most of a prediction's time.

Stages that each wrap the next: shallow models in place of a deep one, a rule that gives every batch
size from a few, traces shared by GPUs and kept in memory and on disk.
"""
