"""Paths that escape their folder: in files, hub ids, archives and commands."""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from analyses.tests.factories import make_user
from engine.core.errors import InvalidInput
from engine.interface.request import AnalysisRequest
from engine.interface.workload import Workload
from memorymark_site.accounts.models import ApiToken
from memorymark_site.operations.archive import MANIFEST, Archive, BadArchive
from memorymark_site.tests.attacks.serving import NAME, Site

OUT = [
    "/static/../private.css",
    "/static/%2e%2e/private.css",
    "/static/%2e%2e%2fprivate.css",
    "/static/..%5cprivate.css",
    "/static/....//private.css",
    "/static/%252e%252e/private.css",
    "/static/..;/private.css",
    "/static/site.css/../../private.css",
    "/static//etc/passwd",
    "/static/%c0%ae%c0%ae/private.css",
    "/static/../var/secret-key",
    "/static/../var/memorymark.sqlite3",
    "//etc/passwd",
    "/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
    "/.git/config",
    "/.env",
    "/var/secret-key",
    "/manage.py",
    "/static/site.css%00.png",
    "/static/",
    "/static/%2e",
]


@pytest.mark.parametrize("path", OUT)
def test_a_path_out_of_the_static_files(site: Site, path: str) -> None:
    """Sent as raw bytes, since client libraries normalize such paths."""
    assert (site.folder / "private.css").read_text() == "private"
    answer = site.raw(f"GET {path} HTTP/1.1\r\nHost: {NAME}\r\nConnection: close\r\n\r\n".encode())
    assert answer.status in (302, 400, 404)
    for inside in ("private", "root:", "SQLite format", "DJANGO", "[core]", "Index of"):
        assert inside not in answer.body.partition("<main")[0].partition("<title>")[0]
    assert "root:x" not in answer.body


def test_a_symbolic_link_in_the_static_files(site: Site) -> None:
    """Only files that existed at the start are served, by their own names."""
    link = site.folder / "static" / "link.css"
    link.symlink_to("/etc/passwd")
    answer = site.ask("GET", "/static/link.css")
    link.unlink()
    assert answer.status == 404


HUB_IDS = [
    "../../etc/passwd", "/etc/passwd", "file:///etc/passwd", "https://evil.example/config.json",
    "acme/../../secret", "acme/..", "../acme", "./acme", "acme/own/../..", "acme\\own",
    "acme/own?x", "acme/own#x", "acme/own%2f..", "acme own/x", "acme/own\n", "\nacme/own",
    "acme/ö", "a/b/c",
    "//evil.example/x", "user:pass@evil.example/x", "acme/own@main/../../x", "acme//own",
    "127.0.0.1:8000/x", "acme/own\0", "~/x", "$HOME/x", "-x/y", "acme/" + "a" * 300, "..", ".",
]  # fmt: skip


@pytest.mark.parametrize("name", HUB_IDS)
def test_a_hub_id_that_is_an_address_or_a_path(name: str) -> None:
    """It would be part of the address of config.json and of a cached file's name."""
    with pytest.raises(InvalidInput):
        Workload.parse({"model": name})


@pytest.mark.parametrize("name", HUB_IDS[:6])
def test_such_a_hub_id_over_the_api(db: None, name: str) -> None:
    token = ApiToken.objects.create(user=make_user())[1]
    client = Client(headers={"Authorization": f"Token {token}"})
    body = json.dumps({"model": name, "gpu": "a10"})
    answer = client.post("/api/v1/analyses/", body, content_type="application/json")
    assert answer.status_code == 400
    assert list(answer.json()["errors"]) == ["model"]


@pytest.mark.parametrize("field", ["gpu", "allocator", "model"])
@pytest.mark.parametrize(
    "value", ["../../x", "a10;id", "a10$(id)", "local:../../x", "backend:x,y", "--help", "a\0b"]
)
def test_text_that_reaches_the_engines_process(field: str, value: str) -> None:
    """Allocator options become an environment variable; no shell is involved."""
    with pytest.raises(InvalidInput):
        AnalysisRequest.parse({"model": "bert", "gpu": "a10"} | {field: value})


def test_the_command_lines_config_is_only_read_as_a_bounded_file(tmp_path: Path) -> None:
    """An endless device, a folder and a missing file are refused quickly with a reason."""
    from engine.models.config_text import read_config_file

    assert len(read_config_file(Path("/dev/zero"))) == 2**20 + 1
    for path in (tmp_path, tmp_path / "none", Path("/dev/null/x"), Path("a\0b")):
        with pytest.raises(InvalidInput):
            read_config_file(path)


# Archives


def _archive(path: Path, tables: dict[str, bytes], **changes: object) -> Path:
    """A backup of these tables as an attacker would create it."""
    described = [
        {
            "name": name,
            "columns": ["id"],
            "rows": body.count(b"\n"),
            "sha256": hashlib.sha256(body).hexdigest(),
        }
        for name, body in tables.items()
    ]
    manifest = {"made_at": "", "database": "sqlite", "migrations": [], "format": 1}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, body in tables.items():
            file.writestr(f"{name}.jsonl", body)
        file.writestr(MANIFEST, json.dumps(manifest | {"tables": described} | changes))
    return path


@pytest.mark.parametrize(
    "name", ["../../../tmp/evil", "/etc/cron.d/evil", "..\\evil", "auth_user; DROP TABLE auth_user"]
)
def test_a_backup_that_writes_outside_or_names_a_table(db: None, tmp_path: Path, name: str) -> None:
    """Zip slip: nothing is ever unpacked to a file, and table names come from the models."""
    folder = tmp_path / "inside"
    folder.mkdir()
    backup = _archive(folder / "backup.zip", {name: b"[1]\n"})
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(CommandError, match="Nothing was restored"):
        call_command("restore", backup)
    assert sorted(tmp_path.rglob("*")) == before
    assert make_user("still").pk


@pytest.mark.longer
def test_a_backup_that_unpacks_to_more_than_memory(tmp_path: Path) -> None:
    """Zip bombs: one endless row, endless rows, an endless manifest."""
    endless_row = _archive(tmp_path / "row.zip", {"auth.user": b'["' + b"a" * 90_000_000})
    rows = b"[1]\n" * 5_000_000
    endless_rows = _archive(tmp_path / "rows.zip", {"auth.user": rows})
    with zipfile.ZipFile(endless_rows) as file:
        manifest = json.loads(file.read(MANIFEST))
    manifest["tables"][0]["rows"] = 3
    with zipfile.ZipFile(tmp_path / "claims.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("auth.user.jsonl", rows)
        file.writestr(MANIFEST, json.dumps(manifest))
    with zipfile.ZipFile(tmp_path / "manifest.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(MANIFEST, b" " * 100_000_000)
    del rows
    for path in (endless_row, tmp_path / "claims.zip", tmp_path / "manifest.zip"):
        assert path.stat().st_size < 1_000_000
        with pytest.raises(BadArchive), Archive(path) as archive:
            archive.check()


def test_a_backup_that_is_another_file(tmp_path: Path) -> None:
    for number, content in enumerate([b"", b"PK\x03\x04", b"\x80\x04cos\nsystem\n.", b"{}" * 99]):
        path = tmp_path / str(number)
        path.write_bytes(content)
        with pytest.raises(BadArchive):
            Archive(path)
