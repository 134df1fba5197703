"""Where the price of a GPU comes from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.gpus import GPUS


def price_per_hour_usd(gpu: str, request: Mapping[str, Any]) -> float:
    """The assumed price of an hour of one GPU of the catalogue, for who asks ``request``.

    A request's own price is that of the request's own GPU.
    """
    own = request.get("price_per_hour_usd")
    if gpu == request["gpu"] and own is not None:
        return float(own)
    return GPUS[gpu].price_per_hour_usd
