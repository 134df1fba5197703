"""Sleeping on a machine whose clock libfaketime shifts.

Its version 0.9.10, which Debian has, makes every ``time.sleep`` raise ``OSError: [Errno 22]``: it
shifts the end of the sleep on the monotonic clock too, although it was told to leave that alone.
"""

import threading
import time


def _sleep(seconds: float) -> None:
    threading.Event().wait(seconds)


time.sleep = _sleep
