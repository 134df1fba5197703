"""The memory of this process on the host."""

from __future__ import annotations

import sys


def peak_resident_bytes() -> int | None:
    """Most memory this process had resident since it started, Python and libraries included.

    ``None`` where the operating system does not tell (Windows).
    """
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # macOS counts bytes, Linux KiB
