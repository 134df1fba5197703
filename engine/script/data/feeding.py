"""Data that a training step reads, inferred from what the forward passes do with it."""

from __future__ import annotations

from collections import Counter


class BatchesRead:
    """Number of batches of each set of data that fed a training step.

    A batch feeds it once a forward pass with gradients has come after it. What passes without them
    have seen is of an evaluation, unless there is nothing else: a teacher or a reference looks at
    the batch before the model does.

    A set of data is known by a number.

    Attributes:
        evaluates_first: Whether there was an evaluation before the first step, as by Lightning,
            which tries it with two batches.
        evaluates: Whether there was one between two steps.
    """

    def __init__(self) -> None:
        self.evaluates_first = self.evaluates = False
        self._has_stepped = False
        self._waiting: Counter[int] = Counter()  # read, and no pass with gradients since
        self._seen: set[int] = set()  # of these, what a pass without them has come after
        self._fed: Counter[int] = Counter()

    def read(self, data: int) -> None:
        """A batch of that data was read."""
        if data in self._seen:
            self._seen.discard(data)
            del self._waiting[data]
            self._evaluated()
        self._waiting[data] += 1

    def forward(self, *, learns: bool) -> None:
        """A forward pass begins, with gradients or without."""
        if not learns:
            self._seen |= self._waiting.keys()
            return
        fed = self._waiting.keys() - self._seen or set(self._waiting)
        if len(fed) < len(self._waiting):
            self._evaluated()
        self._fed.update({data: self._waiting[data] for data in fed})
        self._waiting.clear()
        self._seen.clear()

    def step_ended(self) -> None:
        """Clear the counts: the batches read until now fed another step."""
        self._fed.clear()
        self._has_stepped = True

    def _evaluated(self) -> None:
        if self._has_stepped:
            self.evaluates = True
        else:
            self.evaluates_first = True

    @property
    def fed(self) -> dict[int, int]:
        """Batches by data; of a script without modules, all that it has read."""
        return dict(self._fed or self._waiting)
