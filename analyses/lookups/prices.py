"""Where the prices of GPUs come from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from analyses.lab.selectors import prices
from engine.gpus import GPUS


def prices_for(request: Mapping[str, Any]) -> dict[str, float]:
    """The assumed price of an hour of each GPU of the catalogue, for who asks ``request``.

    It is the lab's, else the catalogue's. A request's own price is that of the request's own GPU.
    """
    held = {name: price.usd for name, price in prices(GPUS).items() if price.usd is not None}
    own = request.get("price_per_hour_usd")
    return held if own is None else held | {request["gpu"]: float(own)}
