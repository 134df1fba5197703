"""The fields of the form as sent: of bounded length, and with what was uploaded beside them."""

from __future__ import annotations

from io import BytesIO
from typing import Any

from django.core.files.uploadedfile import InMemoryUploadedFile, UploadedFile
from django.core.files.uploadhandler import FileUploadHandler
from django.http import QueryDict
from django.utils.datastructures import MultiValueDict

from analyses.pages.new.widgets import OTHER_MODEL
from engine.core.errors import InvalidInput
from engine.features.length_distribution import FIELD as LENGTHS
from engine.features.length_distribution import Lengths
from engine.models.config_text import MAX_CONFIG_BYTES

CONFIG_FILE = "config_file"
"""The file input beside the field ``config``; an uploaded file becomes that field's text."""

LENGTHS_FILE = "lengths_file"
"""The file input beside the lengths of samples; its percentiles become that field's text."""

_MAX_CHARACTERS = 10_000
"""More than any value has but these two: the page repeats what was sent, in up to six places."""

_LONG = ("config", "recipe")

KEPT_BYTES = MAX_CONFIG_BYTES + 1
"""One more than allowed, so that the engine sees that a file is too large."""


def with_upload(
    fields: QueryDict, files: MultiValueDict[str, UploadedFile[bytes]]
) -> tuple[QueryDict, InvalidInput | None]:
    """The fields as sent, cut where they are too long to be right, and the mistake in an upload.

    The text of an uploaded config is the field ``config``, and takes the place of a preset that was
    chosen. So it survives an invalid form: a browser does not send the file again. So do the
    percentiles of an uploaded list of lengths. A list with a mistake is left out.
    """
    mistake = None
    filled = fields.copy()
    for name, values in fields.lists():
        if name not in _LONG:
            filled.setlist(name, [value[:_MAX_CHARACTERS] for value in values])
    if upload := files.get(CONFIG_FILE):
        filled["model"] = OTHER_MODEL
        filled["config"] = upload.read().decode(errors="replace")
    if upload := files.get(LENGTHS_FILE):
        try:
            filled[LENGTHS] = str(Lengths.parse(upload.read().decode(errors="replace")))
        except InvalidInput as error:
            filled[LENGTHS], mistake = "", error
    return filled, mistake


class ConfigUploadHandler(FileUploadHandler):
    """Keeps the beginning of each file in memory and drops the rest."""

    def new_file(self, *args: Any, **kwargs: Any) -> None:
        super().new_file(*args, **kwargs)
        self.kept = BytesIO()

    def receive_data_chunk(self, raw_data: bytes, _start: int) -> None:
        self.kept.write(raw_data[: KEPT_BYTES - self.kept.tell()])

    def file_complete(self, _file_size: int) -> UploadedFile[bytes]:
        size = self.kept.tell()
        self.kept.seek(0)
        return InMemoryUploadedFile(
            self.kept, self.field_name, self.file_name or "", self.content_type or "", size,
            self.charset, self.content_type_extra,
        )  # fmt: skip
