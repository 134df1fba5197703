"""Smaller responses: chosen fields, and nothing the client already has."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import yaml
from django.contrib.auth.models import User
from jsonschema_rs import Draft4Validator
from pytest_django import DjangoAssertNumQueries
from rest_framework.test import APIClient

from analyses import services
from analyses.models import Analysis, Status
from analyses.pages.history.labels import write_labels
from analyses.tests.factories import add_trial, make_analysis, make_trial

URL = "/api/v1/analyses/"
READ = [URL, "/api/v1/models/", "/api/v1/model-types/", "/api/v1/gpus/", "/api/v1/nodes/"]


def test_only_the_requested_fields_are_sent(api: APIClient, member: User) -> None:
    analysis = make_analysis(member, Status.SUCCEEDED)
    one = api.get(f"{URL}{analysis.pk}/?fields=id,status").json()
    listed = api.get(f"{URL}?fields=status, id").json()

    assert one == {"id": analysis.pk, "status": "succeeded"}
    assert (listed["count"], listed["results"]) == (1, [one])
    assert set(api.get("/api/v1/gpus/?fields=name").json()["results"][0]) == {"name"}


def test_lengths_may_be_sent_one_per_line(api: APIClient, member: User) -> None:
    listed = "\n".join(map(str, range(1, 1001)))
    body = {"model": "gpt2", "gpu": "a10", "batching": "longest", "sample_lengths": listed}
    assert api.post(URL, body, format="json").status_code == 201
    assert "p50=501,p55=551" in Analysis.objects.get().request["sample_lengths"]
    refused = api.post(URL, body | {"sample_lengths": "12\nlong"}, format="json")
    assert refused.status_code == 400
    assert "'long', entry 2, is not a length" in refused.content.decode()


@pytest.mark.longer
def test_an_answer_with_selected_fields_is_what_the_schema_says(
    api: APIClient, member: User
) -> None:
    analysis = make_analysis(member, Status.SUCCEEDED)
    described = yaml.safe_load(api.get("/api/v1/schema/").content)
    for address, path in (
        (f"{URL}{analysis.pk}/", f"{URL}{{id}}/"),
        (URL, URL),
        ("/api/v1/gpus/", "/api/v1/gpus/"),
    ):
        fields = "name" if "gpus" in address else "id,status"
        answer = api.get(f"{address}?fields={fields}").json()
        answer = {name: value for name, value in answer.items() if name not in ("next", "previous")}
        content = described["paths"][path]["get"]["responses"]["200"]["content"]
        whole, selected = content["application/json"]["schema"]["anyOf"]
        components = {"components": described["components"]}
        assert not Draft4Validator(whole | components).is_valid(answer)
        Draft4Validator(selected | components).validate(answer)


def test_columns_not_requested_are_not_read(
    api: APIClient, member: User, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    analysis = make_analysis(member, Status.SUCCEEDED)
    with django_assert_num_queries(5) as queries:  # role; version and tags; row and tags again
        api.get(f"{URL}{analysis.pk}/?fields=id,status")
    assert not any("peak_allocated_bytes" in query["sql"] for query in queries)
    assert not any('"analyses_analysis"."result"' in query["sql"] for query in queries)


@pytest.mark.parametrize("address", READ)
def test_an_unknown_field_is_named(api: APIClient, member: User, address: str) -> None:
    response = api.get(address, {"fields": "name,id,colour"})
    assert response.status_code == 400
    (message,) = response.json()["errors"]["fields"]
    assert "colour" in message


@pytest.mark.parametrize("address", READ)
def test_an_unchanged_analysis_is_not_sent_again(
    api: APIClient, member: User, address: str
) -> None:
    make_analysis(member)
    first = api.get(address)
    again = api.get(address, headers={"If-None-Match": first["ETag"]})

    assert (first.status_code, again.status_code) == (200, 304)
    assert again.content == b""
    assert "private" in first["Cache-Control"]
    assert api.get(address, headers={"If-None-Match": '"other"'}).status_code == 200


def test_an_unchanged_analysis_is_not_read(
    api: APIClient, member: User, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    address = f"{URL}{make_analysis(member, Status.SUCCEEDED).pk}/"
    version = api.get(address)["ETag"]
    with django_assert_num_queries(2):  # version and tags
        assert api.get(address, headers={"If-None-Match": version}).status_code == 304


CHANGES: list[Callable[[Analysis, User], object]] = [
    services.adopt,
    lambda analysis, member: write_labels(analysis, ["fast"], "", member),
    lambda analysis, member: write_labels(analysis, [], "a note", member),
    lambda analysis, _: add_trial(analysis, make_trial(8)),
    lambda analysis, _: Analysis.objects.filter(pk=analysis.pk).update(status=Status.FAILED),
    lambda _, member: User.objects.filter(pk=member.pk).update(username="hopper"),
]


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_gives_a_new_version(
    api: APIClient, member: User, change: Callable[[Analysis, User], object]
) -> None:
    analysis = make_analysis(member, Status.SUCCEEDED)
    address = f"{URL}{analysis.pk}/"
    before = api.get(address)
    change(analysis, member)
    after = api.get(address, headers={"If-None-Match": before["ETag"]})

    assert after.status_code == 200
    assert after.json() != before.json()
    assert after["ETag"] != before["ETag"]


def test_other_fields_have_another_version(api: APIClient, member: User) -> None:
    address = f"{URL}{make_analysis(member).pk}/"
    assert api.get(address)["ETag"] != api.get(f"{address}?fields=id")["ETag"]


@pytest.mark.parametrize("size", ["0", "201", "-1", "x", "9" * 40, ""])
def test_an_invalid_page_size_is_refused(api: APIClient, size: str) -> None:
    assert api.get(URL, {"page_size": size}).status_code == 400


@pytest.mark.parametrize("address", [URL, f"{URL}{{}}/"])
def test_if_match_does_not_affect_a_read(api: APIClient, member: User, address: str) -> None:
    address = address.format(make_analysis(member).pk)
    assert api.get(address, headers={"If-Match": '"other"'}).status_code == 200


def test_a_missing_analysis_is_not_found_whatever_the_version(api: APIClient) -> None:
    assert api.get(f"{URL}4711/", headers={"If-None-Match": "*"}).status_code == 404
