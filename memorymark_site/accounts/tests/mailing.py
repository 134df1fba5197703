"""E-mail that is sent in the background."""

from __future__ import annotations

import threading

from memorymark_site.accounts.mail import MAILING


def wait_for_mail() -> None:
    """Wait until all of it is sent."""
    for thread in threading.enumerate():
        if thread.name == MAILING:
            thread.join()
