"""The caches of keys and values that ``generate`` makes by ``cache_implementation``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from transformers import DynamicCache, StaticCache

from ..core.choices import (
    OFFLOADED_CACHES,
    PACKED_CACHES,
    RESIDUAL_LENGTH,
    STATIC_CACHES,
    CacheFormat,
)
from ..core.errors import EngineError, InvalidInput
from .offloading import Host

_OF_ENCODERS = (
    "transformers has no such cache for a decoder that looks at what an encoder read; choose "
    "dynamic or static"
)


@dataclass(frozen=True)
class Caches:
    """Makes caches of one format.

    Attributes:
        format: Format of keys and values.
        host: Holds offloaded ones; needed for those only.
    """

    format: CacheFormat = CacheFormat.DYNAMIC
    host: Host | None = None

    @property
    def is_default(self) -> bool:
        """Whether it is the one that a model makes itself."""
        return self.format is CacheFormat.DYNAMIC

    @property
    def is_static(self) -> bool:
        """Whether a cache has its whole length from the start."""
        return self.format in STATIC_CACHES

    @property
    def packs_every(self) -> int | None:
        """Number of new tokens after which the cache is packed; ``None`` where nothing is."""
        return RESIDUAL_LENGTH if self.format in PACKED_CACHES else None

    def new(self, model: Any, longest: int) -> Any:
        """An empty cache for up to ``longest`` tokens of a model's decoder.

        Raises:
            InvalidInput: If the model cannot have one.
        """
        config = model.config.get_text_config(decoder=True)
        if self.is_default:
            return DynamicCache(config=config)
        if self.format is CacheFormat.STATIC:
            return StaticCache(config, max_cache_len=longest)
        if model.config.is_encoder_decoder:
            raise InvalidInput({"cache_format": _OF_ENCODERS})
        try:
            if self.format in OFFLOADED_CACHES:
                return self._offloaded(config, longest)
            from .quantized_caches import quantized_cache

            return quantized_cache(config, self.format)
        except ImportError as error:
            raise EngineError("this release of transformers has other caches; update it") from error

    def _offloaded(self, config: Any, longest: int) -> Any:
        from .offloaded_caches import OffloadedDynamicCache, OffloadedStaticCache

        if self.host is None:
            raise EngineError("an offloaded cache is predicted only")
        if self.is_static:
            return OffloadedStaticCache(self.host, config=config, max_cache_len=longest)
        return OffloadedDynamicCache(self.host, config=config)
