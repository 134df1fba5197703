"""The backup file: a zip archive with a JSON line per row, and a manifest.

The manifest has the checksum of every table, and is signed with ``SECRET_KEY``: who does not have
it cannot change a row unnoticed. It and the zip directory come last, so a truncated file is never
taken for a whole one.
``unzip -p FILE manifest.json`` shows what it holds.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from types import TracebackType
from typing import Any
from uuid import UUID
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile

from django.utils.crypto import constant_time_compare, salted_hmac

from engine.core.parsing import shown
from engine.core.sizes import gib

FORMAT = 1
"""Increased when older versions cannot read newer files correctly."""

MANIFEST = "manifest.json"
SIGNATURE = "manifest.signature.json"

MAX_LINE_BYTES = 64 * 2**20
"""Per row, and for the manifest. The longest real ones are results of some 100 kB; more would be an
attempt to fill the reader's memory."""


MAX_EXPANSION = 200
"""Times that a table may be longer than in the file, where that is more than :data:`SMALL_BYTES`. A
lab's own are 5 to 20 times as long; more would be an attempt to fill the machine."""

SMALL_BYTES = 64 * 2**20


class BadArchive(Exception):
    """The file is not a backup, or not a whole one; the message says why."""


@dataclass(frozen=True)
class Table:
    """One table in a backup.

    Attributes:
        name: The model's label in small letters, such as ``analyses.trial``.
        columns: The columns of its rows, in their order.
        rows: Their number.
        sha256: Checksum of its lines, to detect damage.
    """

    name: str
    columns: tuple[str, ...]
    rows: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """The contents of a backup.

    Attributes:
        made_at: Time of the snapshot, in ISO 8601.
        database: Its source: ``sqlite`` or ``postgresql``.
        migrations: The applied ones, such as ``analyses.0001_initial``.
        tables: All of them, including empty ones.
        format: See :data:`FORMAT`.
    """

    made_at: str
    database: str
    migrations: tuple[str, ...]
    tables: tuple[Table, ...]
    format: int = FORMAT

    @property
    def rows(self) -> int:
        return sum(table.rows for table in self.tables)

    def rows_of(self, name: str) -> int:
        return sum(table.rows for table in self.tables if table.name == name)


class ArchiveWriter:
    """Writes tables one after the other, then the manifest.

    Args:
        path: An empty or new file.
    """

    def __init__(self, path: Path) -> None:
        # Fast rather than small: level 6 made a file of 5,000 analyses only a sixth smaller.
        self._zip = ZipFile(path, "w", ZIP_DEFLATED, compresslevel=1)

    def __enter__(self) -> ArchiveWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()

    def write(self, name: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Table:
        """Write a table row by row; returns its entry for the manifest."""
        digest, count = hashlib.sha256(), 0
        with self._zip.open(f"{name}.jsonl", "w", force_zip64=True) as member:
            for row in rows:
                line = json.dumps(row, default=_text, separators=(",", ":")).encode() + b"\n"
                digest.update(line)
                member.write(line)
                count += 1
        return Table(name, tuple(columns), count, digest.hexdigest())

    def finish(self, manifest: Manifest) -> None:
        """Write the manifest, which makes the file a backup."""
        text = json.dumps(asdict(manifest), indent=1)
        self._zip.writestr(SIGNATURE, json.dumps({"key": _key(), "hmac": _hmac(text.encode())}))
        self._zip.writestr(MANIFEST, text)


class Archive:
    """A backup being read.

    Attributes:
        manifest: Its contents.
        is_signed: Whether it is signed with this ``SECRET_KEY``, so that nobody without that has
            changed it. Those of earlier versions have no signature.

    Raises:
        BadArchive: If it is not a backup, has more in it than one has, or only a newer version can
            read it.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._zip = ZipFile(path)
        except (OSError, BadZipFile) as error:
            raise BadArchive(f"{path} is not a backup, or was cut off: {error}") from error
        try:
            self.manifest = _manifest(self._zip)
            _check_files(self._zip, self.manifest)
            self.is_signed = _is_signed(self._zip)
        except BadArchive:
            self._zip.close()
            raise

    def __enter__(self) -> Archive:
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._zip.close()

    def check(self) -> None:
        """Read everything once.

        Raises:
            BadArchive: If a table is missing, damaged, or not as long as the manifest says.
        """
        for table in self.manifest.tables:
            digest, count = hashlib.sha256(), 0
            for line in self._lines(table):
                digest.update(line)
                count += 1
                if count > table.rows:
                    break
            if (count, digest.hexdigest()) != (table.rows, table.sha256):
                raise BadArchive(
                    f"the backup is damaged: the checksum of {table.name} does not match"
                )

    def rows(self, table: Table) -> Iterator[list[Any]]:
        """The rows of a table, as JSON has them.

        Raises:
            BadArchive: One is no JSON list of the table's columns.
        """
        for line in self._lines(table):
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise BadArchive(f"the backup is damaged: {table.name}: {error}") from error
            if not isinstance(row, list) or len(row) != len(table.columns):
                raise BadArchive(f"the backup is damaged: {table.name} has a row of other columns")
            yield row

    def _lines(self, table: Table) -> Iterator[bytes]:
        try:
            with self._zip.open(f"{table.name}.jsonl") as member:
                while line := member.readline(MAX_LINE_BYTES + 1):
                    if len(line) > MAX_LINE_BYTES:
                        raise BadArchive(f"the backup is damaged: {table.name} has an endless row")
                    yield line
        except (KeyError, OSError, EOFError, BadZipFile, zlib.error) as error:
            raise BadArchive(f"the backup is damaged: {table.name}: {error}") from error


def _check_files(file: ZipFile, manifest: Manifest) -> None:
    """Check that a backup has its tables in it, each once, and nothing else.

    Raises:
        BadArchive: It has more, or expands to more than rows of a lab do.
    """
    known = {MANIFEST, SIGNATURE, *(f"{table.name}.jsonl" for table in manifest.tables)}
    seen: set[str] = set()
    for info in file.infolist():
        if info.filename not in known or info.filename in seen:
            raise BadArchive(f"the file has {shown(info.filename)} in it, which no backup has")
        seen.add(info.filename)
        longest = max(SMALL_BYTES, MAX_EXPANSION * info.compress_size)
        if info.file_size > longest:
            raise BadArchive(
                f"{info.filename} expands from {gib(info.compress_size)} to "
                f"{gib(info.file_size)}, as no backup does"
            )


def _is_signed(file: ZipFile) -> bool:
    """Whether our key has signed the manifest.

    Raises:
        BadArchive: It has, and the manifest has changed since.
    """
    try:
        with file.open(SIGNATURE) as member:
            signature = json.loads(member.read(MAX_LINE_BYTES))
        with file.open(MANIFEST) as member:
            right = _hmac(member.read(MAX_LINE_BYTES))
        if signature["key"] != _key():
            return False
        if constant_time_compare(signature["hmac"], right):
            return True
    except KeyError:  # of an earlier version
        return False
    except (TypeError, ValueError, BadZipFile, zlib.error) as error:
        raise BadArchive(f"the signature of the backup is damaged: {error!r}") from error
    raise BadArchive("the backup was changed after it was made: its signature does not match")


def _key() -> str:
    """Fingerprint that distinguishes one ``SECRET_KEY`` from another."""
    return _hmac(b"key")[:16]


def _hmac(text: bytes) -> str:
    return salted_hmac("memorymark.backup", text, algorithm="sha256").hexdigest()


def _manifest(file: ZipFile) -> Manifest:
    try:
        with file.open(MANIFEST) as member:
            body = json.loads(member.read(MAX_LINE_BYTES))
        if body["format"] > FORMAT:
            raise BadArchive(
                "the backup is from a newer version of MemoryMark; restore it with that one"
            )
        tables = tuple(
            Table(table["name"], tuple(table["columns"]), table["rows"], table["sha256"])
            for table in body["tables"]
        )
        texts = [body["made_at"], body["database"], *body["migrations"]]
        if not all(isinstance(text, str) for text in texts):
            raise TypeError("its texts are none")
        return Manifest(
            body["made_at"], body["database"], tuple(body["migrations"]), tables, body["format"]
        )
    except (KeyError, TypeError, ValueError, RecursionError, BadZipFile, zlib.error) as error:
        raise BadArchive(f"the file has no backup manifest: {error!r}") from error


def _text(value: object) -> str:
    """Times to the microsecond, and UUIDs; JSON has types for everything else a column holds."""
    if isinstance(value, date):  # a datetime is one too
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    raise TypeError(f"a backup cannot hold a {type(value).__name__}")
