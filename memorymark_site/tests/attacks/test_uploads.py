"""Bodies that are too large, too deep, or not what they claim to be."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from pathlib import Path
from time import monotonic

import pytest
from django.conf import settings
from django.core.files.uploadedfile import SimpleUploadedFile
from django.http import HttpResponse
from django.test import Client

from analyses.models import Analysis, Query, TrainingRun
from analyses.pages.new.values import default_values
from analyses.pages.new.widgets import OTHER_MODEL
from analyses.tests.factories import make_user
from engine.models.config_text import MAX_CONFIG_BYTES
from engine.models.presets import PRESETS
from memorymark_site.accounts.models import ApiToken
from memorymark_site.tests.attacks.serving import Site

SLOWEST_SECONDS = 30.0
"""For one refusal, on a machine that is busy with other tests."""

GOOD = {"model": "bert", "gpu": "a10", "current_batch_size": 16}
BERT = PRESETS["bert"].config()
BOMB = gzip.compress(b"[" * 30_000_000)
"""30 MB in some 30 kB."""


def _zip_bomb() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("config.json", b" " * 20_000_000)
    return file.getvalue()


def _with(text: str) -> bytes:
    """A valid request with one field inserted as raw text."""
    return f"{json.dumps(GOOD)[:-1]}, {text}}}".encode()


HOSTILE: dict[str, bytes] = {
    "nested lists": b"[" * 100_000,
    "nested objects": b'{"a":' * 100_000,
    "nested and closed": b"[" * 50_000 + b"]" * 50_000,
    "a config nested deeply": _with('"config": ' + "[" * 2_000 + "]" * 2_000),
    "an integer of 100,000 digits": _with('"sequence_length": ' + "9" * 100_000),
    "an integer of 4,000 digits": _with('"sequence_length": ' + "9" * 4_000),
    "an integer beyond 64 bits": _with('"sequence_length": 18446744073709551616'),
    "a memory limit beyond all": _with('"memory_limit_bytes": 1e308'),
    "a float beyond all": _with('"hours_per_run": 1e999'),
    "NaN": _with('"hours_per_run": NaN'),
    "-Infinity": _with('"price_per_hour_usd": -Infinity'),
    "true for a number": _with('"current_batch_size": true'),
    "a list for a model": _with('"model": ["bert"]'),
    "an object for a model": _with('"model": {"$gt": ""}'),
    "100,000 fields": _with(",".join(f'"f{n}": 1' for n in range(100_000))),
    "a text of 2 MB": _with('"model": "' + "a" * 2_000_000 + '"'),
    "a NUL": _with('"model": "be\\u0000rt"'),
    "half a letter": _with('"model": "\\ud800"'),
    "text in UTF-16": json.dumps(GOOD).encode("utf-16"),
    "bytes": bytes(range(256)),
    "a zip": _zip_bomb(),
    "a gzip": BOMB,
    "nothing": b"",
    "3 MB": b'"' + b"a" * 3_000_000 + b'"',
}
ADDRESSES = (
    "/api/v1/analyses/", "/api/v1/analyses/import/", "/api/v1/predict/?wait=0",
    "/api/v1/plan/?wait=0", "/api/v1/trainings/", "/api/v1/training-jobs/",
)  # fmt: skip


@pytest.fixture
def script(db: None) -> Client:
    """A script with a write token."""
    token = ApiToken.objects.create(user=make_user("mallory"))[1]
    return Client(headers={"Authorization": f"Token {token}"})


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_body(script: Client, what: str) -> None:
    """At each API address that reads one: refused quickly, and nothing is stored."""
    for address in ADDRESSES:
        begun = monotonic()
        answer = script.post(address, HOSTILE[what], content_type="application/json")
        assert answer.status_code in (400, 413), (address, answer.status_code)
        assert monotonic() - begun < SLOWEST_SECONDS
        assert answer["Content-Type"] == "application/problem+json"
        assert len(answer.content) < 20_000, "it does not come back whole"
    assert not Analysis.objects.exists()
    assert not TrainingRun.objects.exists()
    assert not Query.objects.exists()


@pytest.mark.parametrize(
    "kind",
    [
        "text/plain", "application/xml", "application/x-www-form-urlencoded", "", "text/html",
        "multipart/form-data; boundary=x", "application/json; charset=utf-7", "application/yaml",
    ],
)  # fmt: skip
def test_a_body_that_claims_to_be_of_another_kind(script: Client, kind: str) -> None:
    answer = script.post("/api/v1/analyses/", b'+ADw-{"model": "bert"}', content_type=kind)
    assert answer.status_code in (400, 415)
    assert not Analysis.objects.exists()


def test_a_compressed_body_is_not_unpacked(site: Site) -> None:
    """30 MB in 30 kB with Content-Encoding, which some servers unpack."""
    headers = {"Authorization": f"Token {site.token}", "Content-Type": "application/json"}
    for coding in ("gzip", "deflate", "br", "zstd"):
        answer = site.ask("POST", "/api/v1/analyses/", BOMB, headers | {"Content-Encoding": coding})
        assert answer.status == 400
        assert answer.seconds < SLOWEST_SECONDS


def test_a_body_too_large_for_the_api(site: Site) -> None:
    headers = {"Authorization": f"Token {site.token}", "Content-Type": "application/json"}
    answer = site.ask("POST", "/api/v1/analyses/", b'"' * 2_621_441, headers)
    assert answer.status == 413


@pytest.fixture
def page(client: Client, db: None) -> Client:
    client.force_login(make_user("mallory"))
    return client


def _upload(page: Client, content: bytes, name: str) -> HttpResponse:
    """The form of a new analysis as raw bytes, since the test client strips folders from names."""
    fields = default_values() | {"model": OTHER_MODEL, "gpu": "a10", "current_batch_size": "16"}
    part = b'--x\r\nContent-Disposition: form-data; name="'
    body = b"".join(
        part + f'{field}"\r\n\r\n{value}\r\n'.encode() for field, value in fields.items()
    )
    body += part + f'config_file"; filename="{name}"\r\n'.encode()
    body += b"Content-Type: application/json\r\n\r\n" + content + b"\r\n--x--\r\n"
    kind = "multipart/form-data; boundary=x"
    return page.post("/new/", body, content_type=kind)  # type: ignore[return-value]  # of the test client


NAMES = [
    "../../../etc/cron.d/evil", "..\\..\\evil.json", "/etc/passwd", "C:\\evil.json",
    "evil.json\0.png", "%2e%2e%2fevil", "a" * 5_000, "<script>alert(1)</script>.json",
    "x\r\nA: b", ".htaccess",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_file_whose_name_is_a_path(page: Client, name: str) -> None:
    """Its name is not used, and nothing is written to disk."""
    before = sorted(Path(settings.DATA_DIR).rglob("*"))
    answer = _upload(page, json.dumps(BERT).encode(), name)
    assert answer.status_code in (200, 302, 400)
    assert "<script>alert" not in answer.content.decode()
    assert sorted(Path(settings.DATA_DIR).rglob("*")) == before


@pytest.mark.parametrize(
    "content",
    [
        _zip_bomb(),
        BOMB,
        b"\x89PNG\r\n\x1a\n" + bytes(100),
        b"#!/bin/sh\nid",
        b"\x80\x04cos\nsystem\n.",
    ],
    ids=["zip", "gzip", "picture", "script", "pickle"],
)
def test_a_file_that_is_not_a_config(page: Client, content: bytes) -> None:
    answer = _upload(page, content, "config.json")
    assert answer.status_code == 200, "the form again, with what is wrong"
    assert not Analysis.objects.exists()


def test_a_file_of_20_mb(page: Client) -> None:
    """It is read completely, and only as much as a config is kept."""
    answer = _upload(page, b"x" * 20 * 2**20, "config.json")
    assert answer.status_code == 200
    assert len(answer.content) < 3 * MAX_CONFIG_BYTES
    assert not Analysis.objects.exists()


def test_more_fields_and_files_than_any_form_has(page: Client) -> None:
    fields = {f"f{number}": "x" for number in range(1_100)}
    assert page.post("/new/", fields).status_code == 413
    files = {f"f{number}": SimpleUploadedFile("a", b"x") for number in range(101)}
    assert page.post("/new/", files).status_code == 413


@pytest.mark.parametrize(
    "body",
    [
        b"--x\r\nContent-Disposition: form-data; name=a\r\n\r\n" + b"a" * 3_000_000,
        b"--x\r\n" * 10_000,
        b"--x\r\nContent-Disposition: form-data; name*=utf-8''%FF%FE\r\n\r\na\r\n--x--",
        b"--x\r\nContent-Disposition: form-data; name=a\r\n"
        + b"Content-Transfer-Encoding: base64\r\n\r\n"
        + b"=" * 100_000
        + b"\r\n--x--",
        b"--x\r\n" + b"A: " + b"b" * 200_000 + b"\r\n\r\n",
        b"--x",
    ],
    ids=["one field of 3 MB", "no parts", "a name of no letters", "base64", "a long header", "cut"],
)
def test_a_malformed_form(page: Client, body: bytes) -> None:
    begun = monotonic()
    answer = page.post("/new/", body, content_type="multipart/form-data; boundary=x")
    assert answer.status_code in (200, 400, 413)
    assert monotonic() - begun < SLOWEST_SECONDS
    assert not Analysis.objects.exists()
