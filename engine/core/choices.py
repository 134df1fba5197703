"""The settings of a training step that have a fixed set of values."""

from __future__ import annotations

from .fields import Choice


class Goal(Choice):
    """Goal of an analysis."""

    BATCH = "batch", "batch: which batch to train with"
    GENERATION = "generation", "generation: how many texts at once, and how long"
    LENGTH = "length", "length: the longest sequence that fits in training"


class Precision(Choice):
    """Number formats of a training step, by the names that Lightning and PyTorch use."""

    FP32 = "fp32", "fp32: 32-bit floats throughout"
    TF32 = "tf32", "tf32: fp32 with TF32 matrix units"
    BF16_MIXED = "bf16-mixed", "bf16-mixed: autocast to bfloat16"
    FP16_MIXED = "fp16-mixed", "fp16-mixed: autocast to float16, scaled loss"
    BF16_TRUE = "bf16-true", "bf16-true: weights in bfloat16 too"


class Mode(Choice):
    """Module mode. ``eval`` switches dropout off and still runs backward."""

    TRAIN = "train", "train: dropout on"
    EVAL = "eval", "eval: dropout off, backward still runs"


class Attention(Choice):
    """The kernels that compute attention; ``eager`` keeps all scores in memory."""

    SDPA = "sdpa", "sdpa: PyTorch chooses the kernel"
    EAGER = "eager", "eager: every score is kept"
    FLASH = "flash", "flash: FlashAttention only"
    FLEX = "flex", "flex: FlexAttention, compiled"


class Method(Choice):
    """Method by which a language model learns."""

    SFT = "sft", "texts: the next token (SFT)"
    DPO = "dpo", "DPO: pairs of answers, against a reference"
    ORPO = "orpo", "ORPO: pairs of answers, without a reference"
    KTO = "kto", "KTO: answers that are good or bad"
    GRPO = "grpo", "GRPO: rewards for answers of its own"
    PPO = "ppo", "PPO: a reward model and a value model for answers of its own"
    DISTILLATION = "distillation", "distillation: what a teacher expects"

    @property
    def texts_per_sample(self) -> int:
        """Number of texts of the sequence length in a sample."""
        return 2 if self in (Method.DPO, Method.ORPO) else 1

    @property
    def generates(self) -> bool:
        """Whether the model learns from answers that it has just generated."""
        return self in (Method.GRPO, Method.PPO)

    @property
    def refers(self) -> bool:
        """Whether each answer is scored by a frozen reference too."""
        return self in (Method.DPO, Method.KTO, Method.PPO)

    @property
    def keeps_logits(self) -> bool:
        """Whether TRL's trainer has the logits of all answers at once, and not in tiles."""
        return self in (Method.ORPO, Method.PPO)


class Rollout(Choice):
    """Place where GRPO's completions are generated."""

    GENERATE = "generate", "generate: on this GPU, by transformers"
    SERVER = "server", "server: on other GPUs, such as by vLLM"
    VLLM = "vllm", "vllm: on this GPU, by vLLM beside the training"


class Quantization(Choice):
    """Format of the frozen weights below LoRA."""

    NONE = "none", "none: in the precision's format"
    NF4 = "nf4", "nf4: 4 bits (QLoRA)"
    NF4_SINGLE = "nf4-single", "nf4-single: 4 bits, without double quantization"
    FP4 = "fp4", "fp4: 4 bits, as load_in_4bit alone"
    INT8 = "int8", "int8: 8 bits (LLM.int8)"

    @property
    def in_4_bits(self) -> bool:
        """Whether bitsandbytes packs two weights into a byte."""
        return self in (Quantization.NF4, Quantization.NF4_SINGLE, Quantization.FP4)

    @property
    def doubly(self) -> bool:
        """Whether the scales are quantized too."""
        return self is Quantization.NF4


class Batching(Choice):
    """Way in which samples of different lengths become a batch."""

    FIXED = "fixed", "fixed: every sample has the sequence length"
    LONGEST = "longest", "longest: padded to the longest of the batch"
    BUCKETED = "bucketed", "bucketed: samples of similar length together"
    MAX_TOKENS = "max-tokens", "max-tokens: as many samples as fit a number of tokens"
    PACKED = "packed", "packed: rows filled with several samples"
    PADDING_FREE = "padding-free", "padding-free: the samples of a batch in one row"

    @property
    def pads(self) -> bool:
        """Whether the shorter samples of a batch are padded."""
        return self in (Batching.LONGEST, Batching.BUCKETED, Batching.MAX_TOKENS)


class Parallelism(Choice):
    """Division of the work among several GPUs."""

    NONE = "none", "none: one GPU"
    DDP = "ddp", "DDP: a whole copy on each GPU"
    FSDP = "fsdp", "FSDP: everything sharded"
    ZERO_1 = "zero-1", "ZeRO 1: DeepSpeed shards the optimizer's state"
    ZERO_2 = "zero-2", "ZeRO 2: gradients too"
    ZERO_3 = "zero-3", "ZeRO 3: weights too"


ZERO = (Parallelism.ZERO_1, Parallelism.ZERO_2, Parallelism.ZERO_3)
"""The stages of DeepSpeed's ZeRO, in their order."""


class ReduceDtype(Choice):
    """The number format in which FSDP adds up the gradients of all GPUs."""

    GATHERED = "gathered", "gathered: that of the gathered weights"
    FP32 = "fp32", "fp32: exact sums"
    BF16 = "bf16", "bf16: half as much to send"


class Rotation(Choice):
    """Exchange of keys and values among GPUs that have parts of the same sequences."""

    ALL_GATHER = "allgather", "allgather: all at once, as PyTorch does by default"
    ALL_TO_ALL = "alltoall", "alltoall: from each GPU to the next"


class CrossEntropy(Choice):
    """Way in which a language model computes its loss from its logits."""

    MODEL = "model", "model: all logits at once, as the model has it"
    CHUNKED = "chunked", "chunked: in 8 parts, as torchtune"
    TRL = "trl", "trl: in tiles of 4,096 tokens, as TRL's SFTTrainer does by default"
    LIGER = "liger", "liger: fused with the head (Liger-Kernel)"


class Recompute(Choice):
    """Work that a checkpointed layer repeats in backward."""

    ALL = "all", "all: only its input is kept"
    CHEAP = "cheap", "cheap: all but matrix products and attention"


class CacheFormat(Choice):
    """Format of the keys and values of generated texts."""

    DYNAMIC = "dynamic", "dynamic: grows by a copy with each token (default of generate)"
    STATIC = "static", "static: its whole length from the start"
    OFFLOADED = "offloaded", "offloaded: dynamic, on the host but for two layers"
    OFFLOADED_STATIC = (
        "offloaded-static",
        "offloaded-static: static, on the host but for two layers",
    )
    QUANTO_INT4 = "quanto-int4", "quanto-int4: 4 bits (optimum-quanto)"
    QUANTO_INT2 = "quanto-int2", "quanto-int2: 2 bits (optimum-quanto)"
    HQQ_INT8 = "hqq-int8", "hqq-int8: 8 bits (HQQ)"
    HQQ_INT4 = "hqq-int4", "hqq-int4: 4 bits (HQQ)"
    HQQ_INT2 = "hqq-int2", "hqq-int2: 2 bits (HQQ)"
    FP8 = "fp8", "fp8: 8-bit floats, one scale for a layer's keys, one for its values"


STATIC_CACHES = (CacheFormat.STATIC, CacheFormat.OFFLOADED_STATIC)
OFFLOADED_CACHES = (CacheFormat.OFFLOADED, CacheFormat.OFFLOADED_STATIC)
PACKED_CACHES = {
    CacheFormat.QUANTO_INT4: 4,
    CacheFormat.QUANTO_INT2: 2,
    CacheFormat.HQQ_INT8: 8,
    CacheFormat.HQQ_INT4: 4,
    CacheFormat.HQQ_INT2: 2,
}
"""Caches that pack whole numbers, and in how many bits each."""
QUANTIZED_CACHES = (*PACKED_CACHES, CacheFormat.FP8)
RESIDUAL_LENGTH = 128
"""Number of new tokens that wait before a cache packs them: transformers' default."""
