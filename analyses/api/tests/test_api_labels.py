"""Tags and notes over the API, as on the pages; nothing else of an analysis can be changed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection
from rest_framework.test import APIClient

from analyses import services
from analyses.models import Analysis, Note, Status, Tag
from analyses.pages.history.labels import Labels, labels_of, write_labels
from analyses.tests.factories import add_trial, make_analysis, make_trial, make_user

pytestmark = pytest.mark.database


@pytest.fixture
def analysis(member: User) -> Analysis:
    """Another member's analysis with labels."""
    analysis = make_analysis(make_user("alan"), Status.SUCCEEDED)
    write_labels(analysis, ["old"], "Theirs.", member)
    return analysis


@pytest.fixture
def address(analysis: Analysis) -> str:
    return f"/api/v1/analyses/{analysis.pk}/"


def stored() -> Labels:
    return labels_of(Analysis.objects.get())


def test_tags_and_note_can_be_changed(api: APIClient, address: str) -> None:
    given = {"tags": [" Thesis", "thesis", "Chapter  two", ""], "note": "Run at\r\nnight. "}
    answer = api.patch(address, given, format="json")

    assert answer.status_code == 200
    assert answer.json() == api.get(address).json()
    assert answer["ETag"] == api.get(address)["ETag"]
    assert (answer.json()["tags"], answer.json()["note"]) == (
        ["chapter two", "thesis"],
        "Run at\nnight.",
    )
    assert Note.objects.get().author == User.objects.get(username="grace")


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ({}, Labels(("old",), "Theirs.")),
        ({"tags": []}, Labels((), "Theirs.")),
        ({"note": ""}, Labels(("old",), "")),
        ({"note": None}, Labels(("old",), "")),
        ({"tags": ["new"]}, Labels(("new",), "Theirs.")),
    ],
)
def test_missing_fields_stay_unchanged(
    api: APIClient, address: str, given: dict[str, Any], left: Labels
) -> None:
    assert api.patch(address, given, format="json").status_code == 200
    assert stored() == left


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ({"status": "succeeded"}, {"status"}),
        ({"note": "x", "owner": "grace", "colour": "red"}, {"owner", "colour"}),
        ({"tags": "a, b"}, {"tags"}),
        ({"tags": None}, {"tags"}),
        ({"tags": [1] * 100_000}, {"tags"}),
        ({"tags": ["a", 7]}, {"tags"}),
        ({"tags": ["a, b"]}, {"tags"}),
        ({"tags": ["x" * (Tag.MAX_LENGTH + 1)]}, {"tags"}),
        ({"tags": [str(number) for number in range(21)]}, {"tags"}),
        ({"tags": ["a\0b"], "note": "a\0b"}, {"tags", "note"}),
        ({"note": "x" * (Note.MAX_LENGTH + 1), "tags": [{}]}, {"tags", "note"}),
        ({"note": ["x"]}, {"note"}),
        ({"note": False}, {"note"}),
    ],
)
def test_invalid_fields_are_reported_and_nothing_changes(
    api: APIClient, address: str, given: dict[str, Any], wrong: set[str]
) -> None:
    refused = api.patch(address, given, format="json")

    assert refused.status_code == 400
    assert refused["Content-Type"] == "application/problem+json"
    assert refused.json()["errors"].keys() == wrong
    assert stored() == Labels(("old",), "Theirs.")


def test_half_a_surrogate_pair_is_refused(api: APIClient, address: str) -> None:
    body = rb'{"note": "\ud800", "tags": ["\udfff"], "\ud801": 1}'
    refused = api.patch(address, body, content_type="application/json")
    assert refused.status_code == 400
    assert {"tags", "note"} < refused.json()["errors"].keys()


@pytest.mark.parametrize("body", [b"[]", b'"x"', b"null", b"{"])
def test_a_body_that_is_not_an_object_is_refused(api: APIClient, address: str, body: bytes) -> None:
    assert api.patch(address, body, content_type="application/json").status_code == 400


def test_changes_since_the_read_are_not_overwritten(
    api: APIClient, address: str, analysis: Analysis
) -> None:
    read = {"If-Match": api.get(address)["ETag"]}
    write_labels(analysis, ["old"], "Theirs, later.", User.objects.get(username="alan"))
    refused = api.patch(address, {"tags": ["new"]}, format="json", headers=read)

    assert refused.status_code == 412
    assert "Read it again" in refused.json()["detail"]
    assert stored() == Labels(("old",), "Theirs, later.")

    read = {"If-Match": api.get(address)["ETag"]}
    written = api.patch(address, {"tags": ["new"]}, format="json", headers=read)
    assert (written.status_code, stored()) == (200, Labels(("new",), "Theirs, later."))
    read = {"If-Match": written["ETag"]}
    assert api.patch(address, {"note": "Mine."}, format="json", headers=read).status_code == 200


def test_without_a_version_the_last_writer_wins(
    api: APIClient, address: str, analysis: Analysis
) -> None:
    api.get(address)
    write_labels(analysis, [], "Theirs, later.", User.objects.get(username="alan"))
    assert api.patch(address, {"note": "Mine."}, format="json").status_code == 200
    assert stored().note == "Mine."


@pytest.mark.parametrize("query", ["", "?fields=tags,note", "?wait=0"])
def test_other_changes_do_not_matter_and_any_read_gives_the_version(
    api: APIClient, address: str, analysis: Analysis, query: str
) -> None:
    etag = api.get(address + query)["ETag"]
    add_trial(analysis, make_trial(8))
    services.adopt(analysis, User.objects.get(username="alan"))
    written = api.patch(address, {"note": "Mine."}, format="json", headers={"If-Match": etag})
    assert written.status_code == 200


def test_a_repeated_request_is_no_conflict(api: APIClient, address: str) -> None:
    read = {"If-Match": api.get(address)["ETag"]}
    for _ in range(2):
        written = api.patch(address, {"note": "Mine."}, format="json", headers=read)
        assert written.status_code == 200


@pytest.mark.parametrize(
    ("form", "status"),
    [("{}", 200), ("W/{}", 200), ('"other", {}', 200), ("*", 200), ('"other"', 412), ("x", 400)],
)
def test_every_form_of_if_match_is_understood(
    api: APIClient, address: str, form: str, status: int
) -> None:
    given = {"If-Match": form.format(api.get(address)["ETag"])}
    answer = api.patch(address, {"note": "Mine."}, format="json", headers=given)
    assert answer.status_code == status


def test_a_missing_analysis_is_not_found(api: APIClient) -> None:
    any_version = {"If-Match": "*"}
    answer = api.patch("/api/v1/analyses/4711/", {"note": "x"}, format="json", headers=any_version)
    assert answer.status_code == 404


@pytest.mark.skipif(
    connection.vendor == "sqlite", reason="in memory, as the tests have it, nobody waits for a lock"
)
@pytest.mark.django_db(transaction=True, available_apps=settings.INSTALLED_APPS)
def test_of_concurrent_writers_with_one_version_only_one_succeeds() -> None:
    member = make_user()
    address = f"/api/v1/analyses/{make_analysis(member).pk}/"

    def ask(method: str, **words: Any) -> Any:
        client = APIClient()
        client.force_authenticate(member)
        try:
            return getattr(client, method)(address, **words)
        finally:
            connection.close()

    read = {"If-Match": ask("get")["ETag"]}

    def write(number: int) -> int:
        given = {"note": f"of {number}", "tags": [f"of {number}"]}
        return int(ask("patch", data=given, format="json", headers=read).status_code)

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(write, range(8)))

    assert sorted(answers) == [200] + 7 * [412]
    winner = f"of {answers.index(200)}"
    assert stored() == Labels((winner,), winner)
