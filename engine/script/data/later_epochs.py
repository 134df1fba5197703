"""Later epochs of a script that is followed: each gets the batches of one step.

Images that grow from epoch to epoch, layers that are thawed, a loss that comes in later and outputs
that are kept take memory that the first steps do not show.
"""

from __future__ import annotations

import time
import weakref
from typing import Any

SECONDS = 3.0
"""Time of the processor for all later epochs, with what the script does between them."""
NEWS = 1.01
"""Factor by which a later step has to need more than the traced one to count."""


class LaterEpochs:
    """Gives the batches of one step to each epoch that begins after the traced steps.

    Attributes:
        batches: Batches of a step; set once the traced steps have ended.
        goes_on: Whether the epoch of the traced steps goes on for a step, as it draws sizes.
        owes_step: Whether the batches of a step were given, and it has not ended yet.
    """

    def __init__(self) -> None:
        self.batches = 1
        self.goes_on = False
        self.owes_step = False
        self._before: weakref.WeakSet[Any] = weakref.WeakSet()
        self._given: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._since: float | None = None

    def reads_before(self, iterator: Any) -> None:
        """An iterator is read before the traced steps have ended: its epoch is no later one."""
        self._before.add(iterator)

    def gives(self, iterator: Any) -> bool:
        """Whether an iterator over data that feeds steps gives another batch."""
        if iterator in self._before and not self.goes_on:
            return False
        given = self._given.get(iterator, 0)
        if given >= self.batches or (not given and self.are_over):
            return False
        self._given[iterator] = given + 1
        self.owes_step = True
        return True

    @property
    def are_over(self) -> bool:
        """Whether no more epochs are followed; time counts from the first question on."""
        now = time.process_time()
        self._since = now if self._since is None else self._since
        return now - self._since > SECONDS
