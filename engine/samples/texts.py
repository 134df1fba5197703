"""The texts of a data sample, one after the other, from a file of lines, JSON lines or a table."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from engine.errors import InvalidInput
from engine.parsing import shown

MOST_BYTES = 256 * 2**20
"""A file is read so far and no farther: some ten seconds."""
MOST_BYTES_IN_A_LINE = 16 * 2**20
"""A line is held in memory; one that is longer is refused."""

_JSON_LINES, _TABLES, _JSON = (".jsonl", ".ndjson"), (".csv", ".tsv"), ".json"
_DELIMITERS = ",;\t|"


class Texts:
    """The samples of a file: each a text, or the number of tokens where it is tokenized already.

    Args:
        path: The file; its suffix says what is in it.
        column: The key or the column that holds the text, of JSON lines and tables.

    Attributes:
        complete: Whether the whole file was read.
        untokenized: Whether there were texts, and not only lists of tokens.

    Raises:
        InvalidInput: While it is read, with the number of the line.
    """

    def __init__(self, path: Path, column: str | None) -> None:
        self.complete = True
        self.untokenized = False
        self._path = path
        self._column = column

    def __iter__(self) -> Iterator[str | int]:
        suffix = self._path.suffix.lower()
        if suffix == _JSON:
            raise _wrong("a .json file is not read; write one object a line (.jsonl)")
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
        """Numbered lines as text, with their ends, as far as the bounds go."""
        read = 0
        number = 0
        while line := file.readline(MOST_BYTES_IN_A_LINE + 1):
            number += 1
            read += len(line)
            if len(line) > MOST_BYTES_IN_A_LINE:
                raise _wrong(f"line {number:,} is longer than {MOST_BYTES_IN_A_LINE // 2**20} MiB")
            if read > MOST_BYTES:
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
        # Lines are bounded, but a quoted cell may span many; csv bounds it at 128 KiB by itself.
        before = csv.field_size_limit(MOST_BYTES_IN_A_LINE)
        rows = csv.reader((line for _, line in lines), delimiter=delimiter, strict=True)
        try:
            for row in rows:
                if not row:
                    continue
                if len(row) <= column:
                    raise _wrong(f"line {rows.line_num + 1:,} ends before column {self._column}")
                yield row[column]
        except csv.Error as error:
            raise _wrong(f"line {rows.line_num + 1:,} is no row of a table: {error}") from error
        finally:
            csv.field_size_limit(before)

    def _known_column(self, names: list[str] | dict[str, object], line: int) -> str:
        known = ", ".join(str(name)[:40] for name in list(names)[:20])
        if self._column is None:
            raise _wrong_column(f"name the field that holds the text: {known}")
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
