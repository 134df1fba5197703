"""What a real training used: recorded step by step, with next to no overhead.

:func:`record_training` is for a plain PyTorch loop. :mod:`engine.recording.trainer` has the
callback for the Hugging Face Trainer, :mod:`engine.recording.lightning` the one for Lightning; each
is imported only by who needs it. ``docs/recording.md`` shows all three.

Importing this package loads no torch, so whoever receives records can read them.
"""

from engine.recording.record import Loop, TrainingRecord
from engine.recording.recorder import Recording, record_training
from engine.recording.sinks import Sink, to_file, to_lab

__all__ = ["Loop", "Recording", "Sink", "TrainingRecord", "record_training", "to_file", "to_lab"]
