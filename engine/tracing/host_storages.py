"""The storages of a step that are on the host, beside those on the device."""

from __future__ import annotations

import weakref

import torch


class HostStorages:
    """Counts the bytes of storages on the host while they are alive.

    Attributes:
        live_bytes: Bytes of those alive now.
        peak_bytes: The most there have been at once.
    """

    def __init__(self) -> None:
        self.live_bytes = self.peak_bytes = 0
        self._known: dict[int, weakref.ref[torch.UntypedStorage]] = {}  # by address

    def see(self, storage: torch.UntypedStorage) -> bool:
        """Count a storage until it dies; false if it was counted already."""
        address, size = storage._cdata, storage.nbytes()
        if address in self._known:
            return False

        def left(_: object) -> None:
            del self._known[address]
            self.live_bytes -= size

        self._known[address] = weakref.ref(storage, left)
        self.live_bytes += size
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)
        return True

    def peak_since(self) -> int:
        """The most bytes there have been since the last call."""
        peak, self.peak_bytes = self.peak_bytes, self.live_bytes
        return peak

    def forget(self) -> None:
        """Stop hearing of deaths: what is alive stays counted."""
        self._known.clear()
