from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.http import Http404
from django.test import Client
from django.urls import reverse
from hypothesis import given
from hypothesis import strategies as st

from analyses.models import Analysis, Note, Tag
from analyses.pages.history.labels import (
    MAX_TAGS,
    BadLabel,
    LabelsChanged,
    add_tags,
    labels_of,
    note_from,
    tag_names,
    tags_from,
    tags_in_use,
    write_labels,
)
from analyses.tests.factories import make_analysis, make_user, make_viewer
from drills.lab import until

pytestmark = pytest.mark.database

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
def analysis(member: User) -> Analysis:
    return make_analysis(member)


def opened(page: Client, analysis: Analysis) -> str:
    """The version in the form on the analysis's page."""
    html = page.get(reverse("analyses:detail", args=[analysis.pk])).content.decode()
    return seen_in(html)


def seen_in(html: str) -> str:
    (version,) = re.findall(r'<input type="hidden" name="seen" value="(\w+)"', html)
    return str(version)


def send(page: Client, analysis: Analysis, **fields: str) -> tuple[int, str]:
    address = reverse("analyses:labels", args=[analysis.pk])
    response = page.post(address, fields, follow=True)
    return response.status_code, response.content.decode()


def save(page: Client, analysis: Analysis, **fields: str) -> str:
    status, html = send(page, analysis, seen=opened(page, analysis), **fields)
    assert status == 200
    return html


def tags_of(analysis: Analysis) -> list[str]:
    return list(analysis.tags.values_list("name", flat=True))


@given(
    st.text(
        alphabet=st.characters(exclude_categories=["Cs"], exclude_characters=",\0"),
        max_size=Tag.MAX_LENGTH // 3,
    )
)
def test_a_normalized_tag_stays_the_same(text: str) -> None:
    once = tags_from(text)
    assert tags_from(", ".join(once)) == once


def test_tags_are_lowercase_trimmed_and_unique() -> None:
    assert tags_from(" Thesis,thesis ,, Chapter   two") == ["thesis", "chapter two"]
    assert tags_from(" , ") == []


@pytest.mark.parametrize("text", ["x" * (Tag.MAX_LENGTH + 1), ",".join(map(str, range(21)))])
def test_too_long_and_too_many_tags_are_refused(text: str) -> None:
    with pytest.raises(BadLabel, match=r"at most|limit is 20"):
        tags_from(text)
    assert MAX_TAGS == 20


@pytest.mark.parametrize("name", ["one, two", "a\0b", "\ud800"])
def test_an_invalid_tag_name_is_refused(name: str) -> None:
    with pytest.raises(BadLabel):
        tag_names([name])


def test_a_note_is_the_same_from_every_browser_and_script() -> None:
    assert note_from(" one\r\ntwo\rthree \n") == "one\ntwo\nthree"
    assert note_from("x\r\n" * (Note.MAX_LENGTH // 2))
    for text in ("x" * (Note.MAX_LENGTH + 1), "a\0b", "\ud800"):
        with pytest.raises(BadLabel):
            note_from(text)


def test_tags_and_note_are_saved_and_shown(page: Client, analysis: Analysis) -> None:
    html = save(page, analysis, tags="Thesis, q1 & q2", note="Run at\nnight.")
    assert tags_of(analysis) == ["q1 & q2", "thesis"]
    assert f'href="{reverse("analyses:list")}?tag=q1%20%26%20q2"' in html
    assert "Run at\nnight." in html
    assert "grace, " in html
    html = save(page, analysis, tags="thesis", note="")
    assert tags_of(analysis) == ["thesis"]
    assert not Note.objects.exists()
    assert tags_in_use() == ["thesis"]


def test_every_member_can_edit_and_the_note_names_the_last_author(
    page: Client, analysis: Analysis
) -> None:
    write_labels(analysis, [], "mine", make_user("alan"))
    save(page, analysis, tags="new", note="mine")
    assert Note.objects.get().author == User.objects.get(username="alan")
    save(page, analysis, tags="new", note="ours")
    assert Note.objects.get().author == User.objects.get(username="grace")


def test_invalid_labels_come_back_with_the_reason(page: Client, analysis: Analysis) -> None:
    html = save(page, analysis, tags="x" * 41, note="y" * (Note.MAX_LENGTH + 1))
    assert "A tag has at most 40 characters" in html
    assert "A note has at most 10,000." in html
    assert "x" * 41 in html
    assert tags_of(analysis) == []


def test_hostile_labels_stay_plain_text(page: Client, analysis: Analysis) -> None:
    html = save(page, analysis, tags=HOSTILE, note=HOSTILE)
    listed = page.get(reverse("analyses:list"), {"columns": ["tags", "note"]}).content.decode()
    for text in (html, listed):
        assert HOSTILE not in text
        assert "&lt;script&gt;" in text


def test_the_api_has_tags_and_note(page: Client, analysis: Analysis, member: User) -> None:
    write_labels(analysis, ["thesis"], "ours", member)
    listed = page.get("/api/v1/analyses/").json()["results"][0]
    whole = page.get(f"/api/v1/analyses/{analysis.pk}/").json()
    assert listed["tags"] == whole["tags"] == ["thesis"]
    assert whole["note"] == "ours"


def test_a_missing_analysis_has_no_labels(page: Client) -> None:
    assert page.post("/4711/labels/", {"tags": "a"}).status_code == 404


def test_a_conflicting_save_offers_a_choice(page: Client, analysis: Analysis, member: User) -> None:
    seen = opened(page, analysis)
    write_labels(analysis, ["theirs"], "Their <b>words</b>.", make_user("alan"))
    typed = {"tags": "mine, Thesis", "note": "My words."}
    status, html = send(page, analysis, seen=seen, **typed)

    assert status == 409
    assert (tags_of(analysis), Note.objects.get().text) == (["theirs"], "Their <b>words</b>.")
    assert "Someone changed the tags or note" in html
    assert '<span class="label">theirs</span>' in html
    assert "Their &lt;b&gt;words&lt;/b&gt;." in html
    assert "alan, " in html
    assert 'value="mine, Thesis"' in html
    assert "My words.</textarea>" in html

    status, _ = send(
        page, analysis, seen=seen_in(html), **typed
    )  # the other version has now been seen
    assert status == 200
    assert (tags_of(analysis), Note.objects.get().text) == (["mine", "thesis"], "My words.")


def test_changes_during_the_choice_are_shown_too(page: Client, analysis: Analysis) -> None:
    alan, seen = make_user("alan"), opened(page, analysis)
    write_labels(analysis, [], "first", alan)
    _, html = send(page, analysis, seen=seen, note="mine")
    write_labels(analysis, [], "second", alan)
    status, html = send(page, analysis, seen=seen_in(html), note="mine")

    assert status == 409
    assert "second" in html
    assert Note.objects.get().text == "second"


def test_an_invalid_form_keeps_its_version(page: Client, analysis: Analysis) -> None:
    seen = opened(page, analysis)
    write_labels(analysis, [], "theirs", make_user("alan"))
    _, html = send(page, analysis, seen=seen, tags="x" * 41, note="mine")

    assert seen_in(html) == seen
    assert send(page, analysis, seen=seen_in(html), note="mine")[0] == 409


@pytest.mark.parametrize("seen", [{}, {"seen": "made up"}])
def test_a_form_without_a_version_overwrites_nothing(
    page: Client, analysis: Analysis, member: User, seen: dict[str, str]
) -> None:
    write_labels(analysis, [], "theirs", member)
    assert send(page, analysis, note="", **seen)[0] == 409
    assert Note.objects.get().text == "theirs"


def in_row(page: Client, analysis: Analysis, **fields: str) -> str:
    """The cell of tags in the history's row after it was opened, or saved with these fields."""
    address = reverse("analyses:tags", args=[analysis.pk])
    send = page.post if fields else page.get
    response = send(address, fields, headers={"HX-Request": "true"})
    assert response.status_code == 200
    return str(response.content.decode())


def test_tags_are_edited_in_a_row_and_the_note_is_kept(
    page: Client, analysis: Analysis, member: User
) -> None:
    write_labels(analysis, ["thesis"], "mine", member)
    form = in_row(page, analysis)
    assert 'value="thesis"' in form
    cell = in_row(page, analysis, tags="Thesis, new one", seen=seen_in(form))
    assert "<form" not in cell
    assert "new one</a>" in cell
    assert labels_of(Analysis.objects.get()).tags == ("new one", "thesis")
    assert labels_of(Analysis.objects.get()).note == "mine"


def test_a_row_never_overwrites_tags_that_its_author_has_not_seen(
    page: Client, analysis: Analysis, member: User
) -> None:
    form = in_row(page, analysis)
    write_labels(analysis, ["hers"], None, member)
    again = in_row(page, analysis, tags="mine", seen=seen_in(form))
    assert "Tags now: hers." in again
    assert 'value="mine"' in again
    assert labels_of(Analysis.objects.get()).tags == ("hers",)
    assert "mine</a>" in in_row(page, analysis, tags="mine", seen=seen_in(again))


def test_a_row_says_what_is_wrong_with_tags(page: Client, analysis: Analysis) -> None:
    cell = in_row(page, analysis, tags="x" * 41, seen="")
    assert "at most 40 characters" in cell
    assert not Tag.objects.exists()


def test_without_htmx_a_row_leads_to_the_page_of_tags_and_note(
    page: Client, analysis: Analysis
) -> None:
    response = page.get(reverse("analyses:tags", args=[analysis.pk]))
    assert response["Location"] == reverse("analyses:labels", args=[analysis.pk])
    html = page.get(reverse("analyses:list")).content.decode()
    assert f'class="edit-tags" href="/{analysis.pk}/labels/"' in html


def test_a_viewers_rows_have_no_form(client: Client, analysis: Analysis) -> None:
    client.force_login(make_viewer())
    assert "edit-tags" not in client.get(reverse("analyses:list")).content.decode()


def test_the_same_sent_twice_is_no_conflict(page: Client, analysis: Analysis) -> None:
    seen = opened(page, analysis)
    for _ in range(2):
        status, _ = send(page, analysis, seen=seen, tags="b, a", note="Of\r\ntwo lines.")
        assert status == 200


def test_changes_by_the_worker_are_no_conflict(page: Client, analysis: Analysis) -> None:
    seen = opened(page, analysis)
    Analysis.objects.filter(pk=analysis.pk).update(attempt=2, failure_reason="no GPU")
    assert send(page, analysis, seen=seen, note="mine")[0] == 200


def test_missing_fields_stay_unchanged(analysis: Analysis, member: User) -> None:
    write_labels(analysis, ["a"], "note", member)
    write_labels(analysis, None, "other", make_user("alan"))
    write_labels(analysis, ["b"], None, member)

    assert (tags_of(analysis), Note.objects.get().text) == (["b"], "other")
    assert Note.objects.get().author == User.objects.get(username="alan")


def test_a_note_with_old_line_ends_keeps_its_author(analysis: Analysis, member: User) -> None:
    Note.objects.create(analysis=analysis, text="one\r\ntwo", author=make_user("alan"))
    seen = labels_of(Analysis.objects.get()).version
    write_labels(analysis, ["new"], "one\ntwo", member, seen=[seen])

    assert Note.objects.get().author == User.objects.get(username="alan")


def test_a_version_only_depends_on_these_labels(analysis: Analysis, member: User) -> None:
    versions = set()
    for tags, note in ([], ""), (["a"], ""), ([], "a"), (["a", "b"], ""), (["a"], "b"):
        write_labels(analysis, tags, note, member)
        versions.add(labels_of(Analysis.objects.get()).version)
    assert len(versions) == 5


def test_unseen_changes_are_not_overwritten(analysis: Analysis, member: User) -> None:
    write_labels(analysis, ["a"], "note", member)
    with pytest.raises(LabelsChanged):
        write_labels(analysis, ["b"], "other", member, seen=[])
    write_labels(analysis, ["a"], "note", member, seen=[])  # it already has that value

    assert (tags_of(analysis), Note.objects.get().text) == (["a"], "note")


def test_an_analysis_deleted_meanwhile_takes_no_labels(analysis: Analysis, member: User) -> None:
    Analysis.objects.filter(pk=analysis.pk).delete()
    with pytest.raises(Http404):
        write_labels(analysis, ["a"], "note", member)

    assert not Tag.objects.exists()
    assert not Note.objects.exists()


@pytest.mark.skipif(
    connection.vendor == "sqlite", reason="in memory, as the tests have it, nobody waits for a lock"
)
@pytest.mark.django_db(transaction=True, available_apps=settings.INSTALLED_APPS)
def test_tagging_many_waits_for_an_edit_of_one() -> None:
    member = make_user()
    analysis, deleted = make_analysis(member), make_analysis(member)
    selected = [Analysis.objects.get(pk=each.pk) for each in (analysis, deleted)]
    deleted.delete()

    def add() -> None:
        try:
            add_tags(selected, ["new"])
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool, transaction.atomic():
        write_labels(analysis, ["thesis"], None, member)
        adding = pool.submit(add)
        assert until(lambda: _someone_waits() or adding.done())
        assert not adding.done()
        transaction.on_commit(adding.result)

    assert tags_of(analysis) == ["new", "thesis"]


def _someone_waits() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)")
        return bool(cursor.fetchone()[0])
