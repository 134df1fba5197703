from __future__ import annotations

import json
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest_django import Settings

from memorymark_site.operations.archive import (
    FORMAT,
    MANIFEST,
    SIGNATURE,
    Archive,
    ArchiveWriter,
    BadArchive,
    Manifest,
)

pytestmark = pytest.mark.database

_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


def _write(path: Path, rows: list[list[Any]]) -> Path:
    with ArchiveWriter(path) as writer:
        table = writer.write("lab.row", ["id", "value"], rows)
        writer.finish(Manifest("2026-01-01", "sqlite", ("lab.0001",), (table,)))
    return path


def _with_manifest(path: Path, **changes: object) -> Path:
    """The same file with another manifest, as from someone without our key."""
    changed = path.with_name("changed")
    with ZipFile(path) as old, ZipFile(changed, "w") as new:
        for name in old.namelist():
            body = old.read(name)
            if name == SIGNATURE:
                continue
            if name == MANIFEST:
                body = json.dumps(json.loads(body) | changes).encode()
            new.writestr(name, body)
    return changed


@pytest.mark.longer
@given(st.lists(st.lists(_VALUES, min_size=2, max_size=2)))
def test_rows_come_back_unchanged(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[Any]]
) -> None:
    path = _write(tmp_path_factory.mktemp("archive") / "file", rows)
    with Archive(path) as archive:
        archive.check()
        (table,) = archive.manifest.tables
        assert list(archive.rows(table)) == rows
        assert (archive.manifest.rows, archive.manifest.rows_of("lab.row")) == (len(rows),) * 2


def test_times_keep_their_microseconds(tmp_path: Path) -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, 678_901, UTC)
    with Archive(_write(tmp_path / "file", [[at, at.date()]])) as archive:
        ((time, day),) = archive.rows(archive.manifest.tables[0])
    assert datetime.fromisoformat(time) == at
    assert date.fromisoformat(day) == at.date()


def test_values_json_cannot_hold_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="cannot hold a bytes"):
        _write(tmp_path / "file", [[1, b"bytes"]])


@pytest.mark.parametrize("kept", [0, 10, 0.5, 0.99])
def test_a_truncated_file_is_refused(tmp_path: Path, kept: float) -> None:
    path = _write(tmp_path / "file", [[number, "x" * number] for number in range(100)])
    whole = path.read_bytes()
    path.write_bytes(whole[: int(kept * len(whole)) if kept < 1 else int(kept)])
    with pytest.raises(BadArchive, match="cut off"):
        Archive(path)


def test_damage_inside_is_found(tmp_path: Path) -> None:
    path = _write(tmp_path / "file", [[number, f"{number * 7919}"] for number in range(1000)])
    body = bytearray(path.read_bytes())
    body[len(body) // 3] ^= 0xFF
    path.write_bytes(body)
    with Archive(path) as archive, pytest.raises(BadArchive, match=r"damaged: lab\.row"):
        archive.check()


def test_rows_that_do_not_match_the_manifest_are_found(tmp_path: Path) -> None:
    path = _write(tmp_path / "file", [[1, "one"]])
    table = {"name": "lab.row", "columns": ["id", "value"], "rows": 1, "sha256": "0" * 64}
    changed = _with_manifest(path, tables=[table])
    with Archive(changed) as archive, pytest.raises(BadArchive, match="checksum"):
        archive.check()
    missing = table | {"name": "lab.other"}
    changed = _with_manifest(path, tables=[missing, table])
    with Archive(changed) as archive, pytest.raises(BadArchive, match=r"damaged: lab\.other"):
        archive.check()


def test_a_row_changed_together_with_its_checksum_is_found(
    tmp_path: Path, settings: Settings
) -> None:
    path = _write(tmp_path / "file", [[1, "one"]])
    forged = _write(tmp_path / "forged", [[1, "two"]])
    mixed = tmp_path / "mixed"
    with ZipFile(path) as old, ZipFile(forged) as new, ZipFile(mixed, "w") as file:
        for name in old.namelist():
            file.writestr(name, (old if name == SIGNATURE else new).read(name))

    with Archive(path) as archive:
        assert archive.is_signed
    with pytest.raises(BadArchive, match="changed after it was made"):
        Archive(mixed)
    settings.SECRET_KEY = "another"  # noqa: S105  # as in a new instance
    with Archive(path) as archive:
        archive.check()
        assert not archive.is_signed


def test_a_backup_of_an_earlier_version_has_no_signature(tmp_path: Path) -> None:
    with Archive(_with_manifest(_write(tmp_path / "file", [[1, "one"]]))) as archive:
        archive.check()
        assert not archive.is_signed


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with pytest.raises(BadArchive, match="No such file"):
        Archive(path)
    with ZipFile(path, "w") as other:
        other.writestr("holiday.jpg", "")
    with pytest.raises(BadArchive, match="no backup manifest"):
        Archive(path)
    newer = _with_manifest(_write(tmp_path / "backup", []), format=FORMAT + 1)
    with pytest.raises(BadArchive, match="newer version"):
        Archive(newer)
