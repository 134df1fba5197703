"""Reading data samples: texts of a file, their numbers of tokens, sizes of images.

Images are opened for their headers only. Bounds on lines, files and archives keep untrusted input
from using up time or memory.
"""

from __future__ import annotations

import csv
import io
import json
import os
import struct
import warnings
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING

from PIL import Image, UnidentifiedImageError

from ...core.errors import InvalidInput
from ...core.parsing import shown

if TYPE_CHECKING:
    from tokenizers import Tokenizer


MAX_BYTES = 256 * 2**20
"""No more of a file is read, which takes about ten seconds."""
MAX_BYTES_IN_A_LINE = 16 * 2**20
"""Lines are held in memory, so longer ones are refused."""

_JSON_LINES, _TABLES, _JSON = (".jsonl", ".ndjson"), (".csv", ".tsv"), ".json"
_DELIMITERS = ",;\t|"


class Texts:
    """The samples of a file: each a text, or a number of tokens where it is tokenized already.

    Args:
        path: The file; its suffix determines the format.
        column: The key or column that holds the text, for JSON lines and tables.

    Attributes:
        complete: Whether the whole file was read.
        untokenized: Whether any sample was text, not a list of tokens.

    Raises:
        InvalidInput: While reading, with the line number.
    """

    def __init__(self, path: Path, column: str | None) -> None:
        self.complete = True
        self.untokenized = False
        self._path = path
        self._column = column

    def __iter__(self) -> Iterator[str | int]:
        suffix = self._path.suffix.lower()
        if suffix == _JSON:
            raise _wrong("a .json file cannot be used; write one object per line (.jsonl)")
        try:
            with self._path.open("rb") as file:
                lines = self._lines(file)
                if suffix in _JSON_LINES:
                    samples = self._of_json_lines(lines)
                elif suffix in _TABLES:
                    samples = self._of_table(lines)
                else:
                    samples = self._of_lines(lines)
                for sample in samples:
                    self.untokenized = self.untokenized or isinstance(sample, str)
                    yield sample
        except OSError as error:
            raise _wrong(f"it cannot be read: {error.strerror}") from error

    def _lines(self, file: IO[bytes]) -> Iterator[tuple[int, str]]:
        """Numbered lines, with their line ends, up to the bounds."""
        read = 0
        number = 0
        while line := file.readline(MAX_BYTES_IN_A_LINE + 1):
            number += 1
            read += len(line)
            if len(line) > MAX_BYTES_IN_A_LINE:
                raise _wrong(f"line {number:,} is longer than {MAX_BYTES_IN_A_LINE // 2**20} MiB")
            if read > MAX_BYTES:
                self.complete = False
                return
            yield number, _decoded(line, number)

    def _of_lines(self, lines: Iterator[tuple[int, str]]) -> Iterator[str]:
        if self._column is not None:
            raise InvalidInput({"sample_field": "a text file has no fields; leave it out"})
        return (text for _, line in lines if (text := line.strip()))

    def _of_json_lines(self, lines: Iterator[tuple[int, str]]) -> Iterator[str | int]:
        for number, line in lines:
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise _wrong(f"line {number:,} is not JSON: {str(error)[:100]}") from error
            if not isinstance(row, dict):
                raise _wrong(f"line {number:,} is not a JSON object, such as {{'text': '…'}}")
            value = row[self._known_column(row, number)]
            if isinstance(value, list) and all(type(token) is int for token in value):
                yield len(value)
            elif isinstance(value, str):
                yield value
            else:
                raise _wrong_column(
                    f"{shown(self._column)} in line {number:,} is neither text nor a list of tokens"
                )

    def _of_table(self, lines: Iterator[tuple[int, str]]) -> Iterator[str]:
        _, header = next(lines, (0, ""))
        delimiter = max(_DELIMITERS, key=header.count)
        names = next(csv.reader([header], delimiter=delimiter), [])
        if not names:
            return
        names = [name.strip() for name in names]
        column = names.index(self._known_column(names, 1))
        # Lines are bounded, but a quoted cell may span many; csv's own bound is 128 KiB.
        before = csv.field_size_limit(MAX_BYTES_IN_A_LINE)
        rows = csv.reader((line for _, line in lines), delimiter=delimiter, strict=True)
        try:
            for row in rows:
                if not row:
                    continue
                if len(row) <= column:
                    raise _wrong(f"line {rows.line_num + 1:,} ends before column {self._column}")
                yield row[column]
        except csv.Error as error:
            raise _wrong(f"line {rows.line_num + 1:,} is not a table row: {error}") from error
        finally:
            csv.field_size_limit(before)

    def _known_column(self, names: list[str] | dict[str, object], line: int) -> str:
        known = ", ".join(str(name)[:40] for name in list(names)[:20])
        if self._column is None:
            raise _wrong_column(f"choose the field that holds the text: {known}")
        if self._column not in names:
            raise _wrong_column(
                f"there is no field {shown(self._column)} in line {line:,}; it has {known}"
            )
        return self._column


def _decoded(line: bytes, number: int) -> str:
    if number == 1 and line.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise _wrong("it is UTF-16; save it as UTF-8")
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise _wrong(
            f"line {number:,} is not UTF-8 text (byte {error.start + 1:,} of it); save it as UTF-8"
        ) from error


def _wrong(message: str) -> InvalidInput:
    return InvalidInput({"sample": message})


def _wrong_column(message: str) -> InvalidInput:
    return InvalidInput({"sample_field": message})


CHARACTERS_PER_TOKEN = 4
"""Assumed. "1 token ~= 4 chars in English": OpenAI, "What are tokens and how to count them?",
help.openai.com. Other languages and code take more tokens."""

MAX_TOKENIZER_BYTES = 64 * 2**20
"""Larger than any published ``tokenizer.json``."""

_TOGETHER = 256
"""Texts that are tokenized at once, on all cores."""


def characters_as_tokens(texts: Iterable[str | int]) -> Iterator[int]:
    """The assumed number of tokens of each text, at least one. Numbers pass through."""
    for text in texts:
        yield text if isinstance(text, int) else max(1, -(-len(text) // CHARACTERS_PER_TOKEN))


def tokens(texts: Iterable[str | int], tokenizer_file: Path) -> Iterator[int]:
    """The number of tokens of each text in turn, including special tokens. Numbers pass through.

    Args:
        texts: Texts, or numbers of tokens.
        tokenizer_file: A ``tokenizer.json``.

    Raises:
        InvalidInput: For ``tokenizer``.
    """
    tokenizer = _load(tokenizer_file)
    # Without the places of the tokens in the text, from tokenizers 0.20 on.
    encode = getattr(tokenizer, "encode_batch_fast", tokenizer.encode_batch)
    rest = iter(texts)
    while batch := list(islice(rest, _TOGETHER)):
        written = [text for text in batch if isinstance(text, str)]
        counted = map(len, encode(written))
        yield from (text if isinstance(text, int) else next(counted) for text in batch)


def _load(path: Path) -> Tokenizer:
    from tokenizers import Tokenizer  # takes a while, and most samples need none

    if not path.is_file():
        raise InvalidInput({"tokenizer": f"{shown(path)} is not a file that can be read"})
    if path.stat().st_size > MAX_TOKENIZER_BYTES:
        message = f"{shown(path)} is larger than {MAX_TOKENIZER_BYTES // 2**20} MiB"
        raise InvalidInput({"tokenizer": message})
    try:
        tokenizer: Tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing more exact
        message = f"{shown(path)} is not a tokenizer.json: {str(error)[:100]}"
        raise InvalidInput({"tokenizer": message}) from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


IMAGE_SUFFIXES = frozenset(
    (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")
)

_HEADER_BYTES = 2**20
"""No more of an archived image is unpacked; enough for a header with its metadata."""
_DIRECTORY_BYTES = 16 * 2**20
"""The largest archive directory that is read: about 100,000 names."""

_Damaged = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    OSError,
    ValueError,
    RuntimeError,
)
# zipfile raises RuntimeError where a password is needed or a method is unknown.
_Broken = (UnidentifiedImageError, OSError, ValueError, SyntaxError, struct.error)


def image_sizes(path: Path) -> Iterator[tuple[int, int]]:
    """Width and height in pixels of each image of a folder, an archive or a file.

    Folders are searched recursively without following links to folders. Only files with one of
    :data:`IMAGE_SUFFIXES` count.

    Raises:
        InvalidInput: For ``sample``, with the name of a file that is not an image.
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
    """Refuse an archive whose directory would fill memory, before it is read.

    The end of an archive contains the length of its directory (PKWARE, APPNOTE.TXT, 4.3.16). For
    more than 65,534 files or 4 GiB it is elsewhere, in the ZIP64 record; those are refused as well.
    """
    length = file.seek(0, os.SEEK_END)
    file.seek(max(0, length - 2**16 - 42))
    tail = file.read()
    end = tail.rfind(b"PK\x05\x06")
    if end < 0 or len(tail) < end + 22:
        raise _wrong("this is not a zip archive")
    (directory_bytes,) = struct.unpack_from("<L", tail, end + 12)
    zip64 = tail[max(0, end - 20) : end].startswith(b"PK\x06\x07")
    if zip64 or directory_bytes > _DIRECTORY_BYTES:
        raise _wrong("the archive contains too many files; unpack it and use the folder")


def _size(file: IO[bytes], name: str) -> tuple[int, int]:
    """The size in an image's header; the pixels are not read."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        try:
            with Image.open(file) as image:
                return image.size
        except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
            raise _wrong(
                f"{name[:200]} has more than {Image.MAX_IMAGE_PIXELS:,} pixels; remove it or "
                "scale it down"
            ) from error
        except _Broken as error:
            raise _wrong(f"{name[:200]} is not an image that can be read") from error
