"""How an uploaded file is received: in memory, and no more of it than a config may have."""

from __future__ import annotations

from io import BytesIO
from typing import Any

from django.core.files.uploadedfile import InMemoryUploadedFile, UploadedFile
from django.core.files.uploadhandler import FileUploadHandler

from engine.models.config import LARGEST_CONFIG_BYTES

KEPT_BYTES = LARGEST_CONFIG_BYTES + 1
"""One more than is possible, so that the engine sees that a file is too large."""


class ConfigUploadHandler(FileUploadHandler):
    """Keeps the beginning of each file; the rest is read and dropped."""

    def new_file(self, *args: Any, **kwargs: Any) -> None:
        """Begin with nothing kept."""
        super().new_file(*args, **kwargs)
        self.kept = BytesIO()

    def receive_data_chunk(self, raw_data: bytes, _start: int) -> None:
        """Keep what there is room for."""
        self.kept.write(raw_data[: KEPT_BYTES - self.kept.tell()])

    def file_complete(self, _file_size: int) -> UploadedFile[bytes]:
        """The file, ready to be read."""
        size = self.kept.tell()
        self.kept.seek(0)
        return InMemoryUploadedFile(
            self.kept, self.field_name, self.file_name or "", self.content_type or "", size,
            self.charset, self.content_type_extra,
        )  # fmt: skip
