"""What an evaluation between steps does not combine with."""

from __future__ import annotations

from ..choices import Parallelism
from ..models.tasks import Task
from .contradiction import GIVEN, NOT_GIVEN, OF_ANSWERS, Contradiction, one_of, other_than

_WITHOUT_METRICS = one_of(
    Task.CONTRASTIVE,
    Task.DEPTH_ESTIMATION,
    Task.OBJECT_DETECTION,
    Task.REWARD_MODELLING,
    Task.SENTENCE_EMBEDDING,
    Task.UNIVERSAL_SEGMENTATION,
)
"""Their models return no loss, or outputs that the Trainer cannot concatenate."""

EVALUATION = (
    Contradiction(
        {"eval_batch_size": GIVEN, "parallelism": other_than(Parallelism.NONE)},
        "evaluation is predicted on one GPU only; leave it empty",
    ),
    Contradiction(
        {"eval_batch_size": GIVEN, "method": OF_ANSWERS},
        "evaluation is only predicted with sft; leave it empty",
    ),
    Contradiction(
        {"eval_batch_size": GIVEN, "task": one_of(Task.TEXT_TO_IMAGE)},
        "diffusers' scripts evaluate by generating images; leave it empty",
    ),
    Contradiction(
        {"eval_samples": GIVEN, "eval_batch_size": NOT_GIVEN},
        "give the evaluation batch size too",
    ),
    Contradiction(
        {"eval_samples": GIVEN, "task": _WITHOUT_METRICS},
        "kept logits are not predicted for this task; leave it empty",
    ),
    Contradiction(
        {"eval_accumulation_steps": GIVEN, "eval_samples": NOT_GIVEN},
        "nothing but the loss is kept; leave it empty or give the evaluation samples",
    ),
)
