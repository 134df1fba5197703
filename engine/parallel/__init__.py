"""Several GPUs that share a training run, with DDP or FSDP: groups, recorders, links.

What one of them holds and how long it waits for the others.
"""
