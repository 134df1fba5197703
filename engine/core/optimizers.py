"""The optimizers: everything known of each but the code that makes it.

A new one is a member and a :class:`OptimizerSpec` here, and its constructor in
``engine/step/optimizers/making.py``. No torch in this module: the site reads it too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from .fields import Choice


class Scaling(Enum):
    """How the learning rate follows the global batch, by the optimizer's kind."""

    LINEAR = "linear rule for SGD (Goyal et al. 2017)"
    SQUARE_ROOT = "square root rule for Adam-like optimizers (Malladi et al. 2022)"


@dataclass(frozen=True, kw_only=True)
class Refresh:
    """Decompositions that an optimizer repeats from time to time.

    Attributes:
        work: Description of what is decomposed.
        interval: Interval between them, as text.
    """

    work: str
    interval: str


@dataclass(frozen=True, kw_only=True)
class OptimizerSpec:
    """Facts about an optimizer.

    Attributes:
        state: Numbers kept for each weight, in the weight's format.
        state_bytes: Bytes kept for each weight besides those, in a format of their own.
        constructor: Code that creates it in a plain loop; empty if there is none.
        trainer: Its name in transformers' Trainer; ``None`` if the Trainer does not have it.
        trainer_arguments: Arguments that the Trainer passes on beside its defaults.
        bitsandbytes: Class of bitsandbytes whose kernels it runs; empty for other packages.
        is_paged: Whether its state may leave the GPU, page by page.
        rank: Default rank of projected gradients; ``None`` where none are projected. That of
            transformers' Trainer for GaLore, of apollo-torch's examples for APOLLO.
        projection: Its other settings of projected weights.
        needs_whole_matrices: Whether it multiplies whole matrices with others, which it renews
            from time to time.
        runs_on_shards: Whether it runs on the shards of FSDP and of tensor parallelism.
        is_elementwise: Whether it treats each number alone, so that DeepSpeed may flatten weights.
        takes_one_weight: Whether each weight may have its own, to be updated in backward.
        refresh: Its decompositions, if it has any.
        scaling: How its learning rate follows the global batch; ``None`` where no rule is
            established.
    """

    state: int = 0
    state_bytes: int = 0
    constructor: str = ""
    trainer: str | None = None
    trainer_arguments: str = ""
    bitsandbytes: str = ""
    is_paged: bool = False
    rank: int | None = None
    projection: Mapping[str, str | float] = field(default_factory=dict)
    needs_whole_matrices: bool = False
    runs_on_shards: bool = True
    is_elementwise: bool = False
    takes_one_weight: bool = True
    refresh: Refresh | None = None
    scaling: Scaling | None = None


class Optimizer(Choice):
    """Optimizers; ``none`` runs forward, loss and backward only."""

    ADAMW = "adamw", "AdamW, fused"
    ADAMW_FOREACH = "adamw-foreach", "AdamW, foreach"
    ADAMW_8BIT = "adamw-8bit", "AdamW, 8-bit (bitsandbytes)"
    PAGED_ADAMW = "paged-adamw", "AdamW, paged (bitsandbytes)"
    PAGED_ADAMW_8BIT = "paged-adamw-8bit", "AdamW, paged and 8-bit (bitsandbytes)"
    SCHEDULE_FREE_ADAMW = "schedule-free-adamw", "AdamW, schedule-free"
    ADAM_MINI = "adam-mini", "Adam-mini"
    MUON = "muon", "Muon for hidden matrices, AdamW for the rest"
    GALORE = "galore", "GaLore: AdamW on projected gradients"
    GALORE_8BIT = "galore-8bit", "GaLore, moments in 8 bits (bitsandbytes)"
    APOLLO = "apollo", "APOLLO: AdamW on random projections"
    SOAP = "soap", "SOAP"
    SHAMPOO = "shampoo", "Shampoo, in blocks"
    ADAFACTOR = "adafactor", "Adafactor"
    LION = "lion", "Lion"
    SGD_MOMENTUM = "sgd-momentum", "SGD with momentum"
    SGD = "sgd", "SGD"
    RMSPROP = "rmsprop", "RMSprop"
    ADAGRAD = "adagrad", "Adagrad"
    NONE = "none", "none: forward, loss and backward only"

    @property
    def spec(self) -> OptimizerSpec:
        """Facts about it."""
        return _SPECS[self]


_ADAM_LIKE = ("Adam", "AdamW", "RMSprop")
_SUFFIXES = ("", "8bit", "32bit")
"""Optimizers of bitsandbytes that come paged too."""

_SCALED_CLASSES = {
    "SGD": Scaling.LINEAR,
    **{
        f"{paged}{name}{bits}": Scaling.SQUARE_ROOT
        for name in _ADAM_LIKE
        for bits in _SUFFIXES
        for paged in ("", "Paged")
    },
}


def scaling_of(class_name: str) -> Scaling | None:
    """How the learning rate of an optimizer of torch or bitsandbytes follows the global batch.

    Args:
        class_name: Its class.

    Returns:
        ``None`` where no rule is established, and for classes of others.
    """
    return _SCALED_CLASSES.get(class_name)


PROJECTED_MODULES = r".*\.\d+\..*"
"""Names of modules whose linear layers are projected: those of numbered blocks. Heads and
embeddings are not, as in the papers' own runs."""

_SVD = Refresh(work="an SVD of each projected gradient", interval="every 200 steps")
_GALORE: Mapping[str, str | float] = {"scale": 0.25, "proj_type": "std"}

# transformers' Adafactor mixes shards with whole tensors; bitsandbytes' kernels refuse those of
# fully_shard (0.50.2: "got mixed torch.Tensor and DTensor") and read past the end of others
# (https://github.com/bitsandbytes-foundation/bitsandbytes/issues/1633); Muon's products gather
# whole matrices, one after another; GaLore, APOLLO, SOAP and Shampoo need whole matrices too.
_SPECS: Mapping[Optimizer, OptimizerSpec] = {
    Optimizer.ADAMW: OptimizerSpec(
        state=2,
        constructor="torch.optim.AdamW(model.parameters(), fused=True)",
        trainer="adamw_torch_fused",
        is_elementwise=True,
        scaling=Scaling.SQUARE_ROOT,
    ),
    Optimizer.ADAMW_FOREACH: OptimizerSpec(
        state=2,
        constructor="torch.optim.AdamW(model.parameters(), foreach=True)",
        trainer="adamw_torch",
        is_elementwise=True,
        scaling=Scaling.SQUARE_ROOT,
    ),
    Optimizer.ADAMW_8BIT: OptimizerSpec(
        state_bytes=2,
        constructor="bitsandbytes.optim.AdamW8bit(model.parameters())",
        trainer="adamw_bnb_8bit",
        bitsandbytes="AdamW8bit",
        runs_on_shards=False,
        scaling=Scaling.SQUARE_ROOT,
    ),
    Optimizer.PAGED_ADAMW: OptimizerSpec(
        constructor="bitsandbytes.optim.PagedAdamW(model.parameters())",
        trainer="paged_adamw_32bit",
        bitsandbytes="PagedAdamW",
        is_paged=True,
        runs_on_shards=False,
        scaling=Scaling.SQUARE_ROOT,
    ),
    Optimizer.PAGED_ADAMW_8BIT: OptimizerSpec(
        constructor="bitsandbytes.optim.PagedAdamW8bit(model.parameters())",
        trainer="paged_adamw_8bit",
        bitsandbytes="PagedAdamW8bit",
        is_paged=True,
        runs_on_shards=False,
        scaling=Scaling.SQUARE_ROOT,
    ),
    Optimizer.SCHEDULE_FREE_ADAMW: OptimizerSpec(
        state=2,
        constructor="schedulefree.AdamWScheduleFree(model.parameters())",
        trainer="schedule_free_adamw",
        scaling=Scaling.SQUARE_ROOT,
    ),
    Optimizer.ADAM_MINI: OptimizerSpec(
        state=1,
        constructor="adam_mini.Adam_mini(model.named_parameters())",
        runs_on_shards=False,
        takes_one_weight=False,
        scaling=Scaling.SQUARE_ROOT,
    ),
    Optimizer.MUON: OptimizerSpec(
        state=1,
        constructor="memorymark.step.optimizers.muon_with_adamw(model, lr=1e-3)",
        runs_on_shards=False,
        takes_one_weight=False,
    ),
    Optimizer.GALORE: OptimizerSpec(
        constructor="galore_torch.GaLoreAdamW(groups)",
        trainer="galore_adamw",
        rank=128,
        projection=_GALORE,
        needs_whole_matrices=True,
        runs_on_shards=False,
        refresh=_SVD,
        scaling=Scaling.SQUARE_ROOT,
    ),
    Optimizer.GALORE_8BIT: OptimizerSpec(
        constructor="galore_torch.GaLoreAdamW8bit(groups)",
        trainer="galore_adamw_8bit",
        bitsandbytes="AdamW8bit",
        rank=128,
        projection=_GALORE,
        needs_whole_matrices=True,
        runs_on_shards=False,
        refresh=_SVD,
        scaling=Scaling.SQUARE_ROOT,
    ),
    Optimizer.APOLLO: OptimizerSpec(
        constructor="apollo_torch.APOLLOAdamW(groups)",
        trainer="apollo_adamw",
        rank=256,
        projection={
            "scale": 1.0,
            "proj_type": "std",
            "proj": "random",
            "scale_type": "channel",
        },
        needs_whole_matrices=True,
        runs_on_shards=False,
        scaling=Scaling.SQUARE_ROOT,
    ),
    Optimizer.SOAP: OptimizerSpec(
        state=2,
        constructor="pytorch_optimizer.SOAP(model.parameters())",
        needs_whole_matrices=True,
        runs_on_shards=False,
        refresh=Refresh(
            work="a QR decomposition for each side of each matrix", interval="every 10 steps"
        ),
    ),
    Optimizer.SHAMPOO: OptimizerSpec(
        state=2,
        constructor="pytorch_optimizer.ScalableShampoo(model.parameters())",
        needs_whole_matrices=True,
        runs_on_shards=False,
    ),
    Optimizer.ADAFACTOR: OptimizerSpec(
        constructor="transformers.Adafactor(model.parameters())",
        trainer="adafactor",
        runs_on_shards=False,
    ),
    Optimizer.LION: OptimizerSpec(
        state=1,
        constructor="bitsandbytes.optim.Lion(model.parameters())",
        trainer="lion_32bit",
        is_elementwise=True,
    ),
    Optimizer.SGD_MOMENTUM: OptimizerSpec(
        state=1,
        constructor="torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)",
        trainer="sgd",
        trainer_arguments="momentum=0.9",
        is_elementwise=True,
        scaling=Scaling.LINEAR,
    ),
    Optimizer.SGD: OptimizerSpec(
        constructor="torch.optim.SGD(model.parameters(), lr=1e-3)",
        trainer="sgd",
        is_elementwise=True,
        scaling=Scaling.LINEAR,
    ),
    Optimizer.RMSPROP: OptimizerSpec(
        state=1,
        constructor="torch.optim.RMSprop(model.parameters())",
        trainer="rmsprop",
        is_elementwise=True,
        scaling=Scaling.SQUARE_ROOT,
    ),
    Optimizer.ADAGRAD: OptimizerSpec(
        state=1,
        constructor="torch.optim.Adagrad(model.parameters())",
        trainer="adagrad",
        is_elementwise=True,
    ),
    Optimizer.NONE: OptimizerSpec(takes_one_weight=False),
}
