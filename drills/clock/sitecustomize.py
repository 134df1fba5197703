"""Makes sleeping work where libfaketime shifts the clock.

With version 0.9.10, the one in Debian, every ``time.sleep`` raises ``OSError: [Errno 22]``: it also
shifts the end of the sleep on the monotonic clock, although it was set to leave that clock alone.
"""

import threading
import time


def _sleep(seconds: float) -> None:
    threading.Event().wait(seconds)


time.sleep = _sleep
