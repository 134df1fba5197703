"""Recording of what a real training run uses, step by step, with next to no overhead.

:func:`record_training` is for a plain PyTorch loop. :mod:`engine.recording.trainer` has the
callback for the Hugging Face Trainer, :mod:`engine.recording.lightning` the one for Lightning.
``docs/recording.md`` shows all three.

Importing this package loads nothing but the standard library, so the site can read records too.
"""

from ..records.record import Loop, TrainingRecord
from .recorder import Recording, Sink, record_training, to_file, to_lab

__all__ = ["Loop", "Recording", "Sink", "TrainingRecord", "record_training", "to_file", "to_lab"]
