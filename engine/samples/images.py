"""The sizes of the images in a folder or a zip archive, from their headers alone."""

from __future__ import annotations

import io
import os
import struct
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from PIL import Image, UnidentifiedImageError

from engine.errors import InvalidInput

IMAGE_SUFFIXES = frozenset(
    (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")
)

_HEADER_BYTES = 2**20
"""Enough for a header with its metadata; no more of an archived image is unpacked."""
_DIRECTORY_BYTES = 16 * 2**20
"""Largest directory of an archive that is read: some 100,000 names."""

_Damaged = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    OSError,
    ValueError,
    RuntimeError,
)
# A RuntimeError is how zipfile says that a password is needed or a method is not known.
_Broken = (UnidentifiedImageError, OSError, ValueError, SyntaxError, struct.error)


def image_sizes(path: Path) -> Iterator[tuple[int, int]]:
    """Width and height in pixels of each image of a folder, an archive or a file.

    Folders are searched in full, but links to folders are not followed. Files with another suffix
    than :data:`IMAGE_SUFFIXES` are passed over.

    Raises:
        InvalidInput: For ``sample``, with the name of the file that is no image.
    """
    if path.is_dir():
        yield from _in_folder(path)
    elif path.suffix.lower() == ".zip":
        yield from _in_archive(path)
    else:
        with path.open("rb") as file:
            yield _size(file, path.name)


def _in_folder(folder: Path) -> Iterator[tuple[int, int]]:
    for root, _, names in os.walk(folder):
        for name in names:
            file = Path(root, name)
            if file.suffix.lower() not in IMAGE_SUFFIXES or not file.is_file():
                continue
            try:
                with file.open("rb") as opened:
                    size = _size(opened, str(file.relative_to(folder)))
            except OSError as error:
                raise _wrong(f"{name} cannot be read: {error.strerror}") from error
            yield size


def _in_archive(path: Path) -> Iterator[tuple[int, int]]:
    with path.open("rb") as file:
        _check_directory(file)
        try:
            with zipfile.ZipFile(file) as archive:
                for info in archive.infolist():
                    if Path(info.filename).suffix.lower() in IMAGE_SUFFIXES:
                        with archive.open(info) as member:
                            header = io.BytesIO(member.read(_HEADER_BYTES))
                        yield _size(header, info.filename)
        except _Damaged as error:
            raise _wrong(f"the archive cannot be unpacked: {error}") from error


def _check_directory(file: IO[bytes]) -> None:
    """Refuse an archive whose directory would fill the memory, before it is read.

    The end of an archive says how long its directory is (PKWARE, APPNOTE.TXT, 4.3.16). Archives of
    more than 65,534 files or 4 GiB say it elsewhere, in the ZIP64 record, and are refused as well.
    """
    length = file.seek(0, os.SEEK_END)
    file.seek(max(0, length - 2**16 - 42))
    tail = file.read()
    end = tail.rfind(b"PK\x05\x06")
    if end < 0 or len(tail) < end + 22:
        raise _wrong("it is no zip archive")
    (directory_bytes,) = struct.unpack_from("<L", tail, end + 12)
    zip64 = tail[max(0, end - 20) : end].startswith(b"PK\x06\x07")
    if zip64 or directory_bytes > _DIRECTORY_BYTES:
        raise _wrong("the archive holds too many files; unpack it and give the folder")


def _size(file: IO[bytes], name: str) -> tuple[int, int]:
    """The size that an image's header tells; its pixels are not read."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        try:
            with Image.open(file) as image:
                return image.size
        except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
            raise _wrong(
                f"{name[:200]} has more than {Image.MAX_IMAGE_PIXELS:,} pixels; take it out or "
                "scale it down"
            ) from error
        except _Broken as error:
            raise _wrong(f"{name[:200]} is not an image that can be read") from error


def _wrong(message: str) -> InvalidInput:
    return InvalidInput({"sample": message})
