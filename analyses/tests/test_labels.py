from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from hypothesis import given
from hypothesis import strategies as st

from analyses.history.labels import MOST_TAGS, BadTags, tags_from, tags_in_use, write_labels
from analyses.models import Analysis, Note, Tag
from analyses.tests.factories import make_analysis, make_user

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
def page(client: Client, member: User) -> Client:
    client.force_login(member)
    return client


@pytest.fixture
def analysis(member: User) -> Analysis:
    return make_analysis(member)


def save(page: Client, analysis: Analysis, **fields: str) -> str:
    address = reverse("analyses:labels", args=[analysis.pk])
    response = page.post(address, fields, follow=True)
    assert response.status_code == 200
    return response.content.decode()


def tags_of(analysis: Analysis) -> list[str]:
    return list(analysis.tags.values_list("name", flat=True))


@given(st.text(alphabet=st.characters(exclude_characters=","), max_size=Tag.LONGEST // 3))
def test_a_tag_reads_the_same_again(text: str) -> None:
    once = tags_from(text)
    assert tags_from(", ".join(once)) == once


def test_tags_are_small_trimmed_and_each_there_once() -> None:
    assert tags_from(" Thesis,thesis ,, Chapter   two") == ["thesis", "chapter two"]
    assert tags_from(" , ") == []


@pytest.mark.parametrize("text", ["x" * (Tag.LONGEST + 1), ",".join(map(str, range(21)))])
def test_too_long_and_too_many_tags_are_refused(text: str) -> None:
    with pytest.raises(BadTags, match="at most"):
        tags_from(text)
    assert MOST_TAGS == 20


def test_tags_and_note_are_written_and_shown(page: Client, analysis: Analysis) -> None:
    html = save(page, analysis, tags="Thesis, q1 & q2", note="Run at\nnight.")
    assert tags_of(analysis) == ["q1 & q2", "thesis"]
    assert f'href="{reverse("analyses:list")}?tag=q1%20%26%20q2"' in html
    assert "Run at\nnight." in html
    assert "grace, " in html
    html = save(page, analysis, tags="thesis", note="")
    assert tags_of(analysis) == ["thesis"]
    assert not Note.objects.exists()
    assert tags_in_use() == ["thesis"]


def test_every_member_may_write_and_the_note_says_who_wrote_last(
    page: Client, analysis: Analysis
) -> None:
    write_labels(analysis, [], "mine", make_user("alan"))
    save(page, analysis, tags="new", note="mine")
    assert Note.objects.get().author == User.objects.get(username="alan")
    save(page, analysis, tags="new", note="ours")
    assert Note.objects.get().author == User.objects.get(username="grace")


def test_what_is_wrong_comes_back_with_its_reason(page: Client, analysis: Analysis) -> None:
    html = save(page, analysis, tags="x" * 41, note="y" * (Note.LONGEST + 1))
    assert "a tag has at most 40 characters" in html
    assert "at most 10000 characters" in html
    assert "x" * 41 in html
    assert tags_of(analysis) == []


def test_hostile_labels_stay_text(page: Client, analysis: Analysis) -> None:
    html = save(page, analysis, tags=HOSTILE, note=HOSTILE)
    listed = page.get(reverse("analyses:list"), {"columns": ["tags", "note"]}).content.decode()
    for text in (html, listed):
        assert HOSTILE not in text
        assert "&lt;script&gt;" in text


def test_the_api_tells_tags_and_note(page: Client, analysis: Analysis, member: User) -> None:
    write_labels(analysis, ["thesis"], "ours", member)
    listed = page.get("/api/v1/analyses/").json()["results"][0]
    whole = page.get(f"/api/v1/analyses/{analysis.pk}/").json()
    assert listed["tags"] == whole["tags"] == ["thesis"]
    assert whole["note"] == "ours"


def test_an_analysis_that_is_not_there_has_no_labels(page: Client) -> None:
    assert page.post("/4711/labels/", {"tags": "a"}).status_code == 404
