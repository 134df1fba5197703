"""Measures what packages of quantized caches allocate, for engine/step/tests/cache_memory.toml.

``python -m benchmarks.quantized_caches`` needs optimum-quanto 0.2.7 and hqq 0.2.8.post1 beside
transformers. On a CPU both do two things otherwise than on a GPU, which is put right here: quanto
unpacks by one kernel that only makes its result (unpack.cu), and HQQ rounds in half precision.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import LlamaConfig, QuantizedCache

from engine.core.choices import PACKED_CACHES
from engine.step.tests.cache_memory import held_and_peaks

CONFIG = LlamaConfig(num_hidden_layers=1)


def main() -> None:
    """Print a line for each format and each number format."""
    library = _as_on_a_gpu()
    for cache_format, bits in PACKED_CACHES.items():
        for dtype in (torch.bfloat16, torch.float32):
            backend = cache_format.partition("-")[0]
            cache = QuantizedCache(backend, config=CONFIG, nbits=bits)
            found = [list(both) for both in held_and_peaks(cache, dtype)]
            name = f"{cache_format} {str(dtype).removeprefix('torch.')}"
            print(f'"{name}" = {found}', flush=True)  # noqa: T201  # a command
    del library


def _as_on_a_gpu() -> torch.library.Library:
    """Let both packages allocate as on a GPU, as long as what is returned lives."""
    import hqq.core.optimize
    import optimum.quanto  # noqa: F401  # defines the operators

    rounding: Any = hqq.core.optimize
    rounding.float32 = torch.float16
    library = torch.library.Library("quanto", "IMPL")
    library.impl("unpack", _unpacked, "CPU", allow_override=True)
    return library


def _unpacked(packed: torch.Tensor, bits: int) -> torch.Tensor:
    return torch.cat([packed] * (8 // bits))


if __name__ == "__main__":
    main()
