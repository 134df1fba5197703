"""What a training step can be set to, one of a few values each."""

from __future__ import annotations

from .fields import Choice


class Precision(Choice):
    """Number formats of a training step, named as Lightning and PyTorch users name them."""

    FP32 = "fp32", "fp32: 32-bit floats throughout"
    TF32 = "tf32", "tf32: fp32 with TF32 matrix units"
    BF16_MIXED = "bf16-mixed", "bf16-mixed: autocast to bfloat16"
    FP16_MIXED = "fp16-mixed", "fp16-mixed: autocast to float16, scaled loss"
    BF16_TRUE = "bf16-true", "bf16-true: weights in bfloat16 too"


class Optimizer(Choice):
    """Optimizers; ``none`` runs forward, loss and backward only."""

    ADAMW = "adamw", "AdamW, fused"
    ADAMW_FOREACH = "adamw-foreach", "AdamW, foreach"
    ADAMW_8BIT = "adamw-8bit", "AdamW, 8-bit (bitsandbytes)"
    ADAFACTOR = "adafactor", "Adafactor"
    LION = "lion", "Lion"
    SGD_MOMENTUM = "sgd-momentum", "SGD with momentum"
    SGD = "sgd", "SGD"
    RMSPROP = "rmsprop", "RMSprop"
    ADAGRAD = "adagrad", "Adagrad"
    NONE = "none", "none: forward, loss and backward only"


class Mode(Choice):
    """Module mode. ``eval`` switches dropout off and still runs backward."""

    TRAIN = "train", "train: dropout on"
    EVAL = "eval", "eval: dropout off, backward still runs"


class Attention(Choice):
    """How attention is computed: PyTorch's choice of kernels, all scores kept, or flash only."""

    SDPA = "sdpa", "sdpa: PyTorch chooses the kernel"
    EAGER = "eager", "eager: every score is kept"
    FLASH = "flash", "flash: FlashAttention only"


class Parallelism(Choice):
    """How several GPUs share the work: whole copies, or everything sharded."""

    NONE = "none", "none: one GPU"
    DDP = "ddp", "DDP: a whole copy on each GPU"
    FSDP = "fsdp", "FSDP: everything sharded"
