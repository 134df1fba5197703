"""Measured trials: real training steps on the local device, each trial in a fresh process.

``parent`` starts the processes, ``child`` is one of them; cuda, mps and cpu run the trial.
"""
