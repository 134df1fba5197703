"""The request that the form offers first, and that each engine answers while it waits for one.

Apart from :mod:`~engine.interface.request`, as making one checks it, and that loads pydantic.
"""

from __future__ import annotations

from .request import AnalysisRequest
from .workload import Workload

FIRST_REQUEST = AnalysisRequest(Workload("bert"), gpu="a10")
