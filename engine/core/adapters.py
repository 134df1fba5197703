"""The kinds of adapter that LoRA trains beside frozen weights: everything known of each.

A new one that peft's ``LoraConfig`` has is a member and its :class:`AdapterSpec` here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .fields import Choice


@dataclass(frozen=True, kw_only=True)
class AdapterSpec:
    """Facts about a kind of adapter.

    Attributes:
        short: Its name, where settings are named in a few words.
        peft: Arguments of peft's ``LoraConfig`` that choose it.
        reads_weights: Whether it reads the frozen weights, unpacked, when it is made and in each
            step.
    """

    short: str
    peft: Mapping[str, bool] = field(default_factory=dict)
    reads_weights: bool = False


class Adapter(Choice):
    """Kind of adapter that LoRA trains beside frozen weights."""

    LORA = "lora", "lora: two small matrices for each weight"
    DORA = "dora", "dora: their direction, and the magnitude apart"

    @property
    def spec(self) -> AdapterSpec:
        """Facts about it."""
        return _SPECS[self]


_SPECS: Mapping[Adapter, AdapterSpec] = {
    Adapter.LORA: AdapterSpec(short="LoRA"),
    Adapter.DORA: AdapterSpec(short="DoRA", peft={"use_dora": True}, reads_weights=True),
}
"""Specs by adapter."""
