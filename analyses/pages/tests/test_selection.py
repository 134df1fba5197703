from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from analyses.models import FINAL_STATUSES, Analysis, LogLine, Note, Status, Trial
from analyses.pages.history.labels import add_tags, write_labels
from analyses.pages.history.selection import BadSelection, ids_from
from analyses.tests.factories import add_log, make_analysis, make_user

pytestmark = pytest.mark.database


def choose(client: Client, **query: Any) -> str:
    response = client.get(reverse("analyses:selection"), query)
    assert response.status_code == 302
    return str(response["Location"])


def address(name: str, *analyses: Analysis, back: str = "") -> str:
    ids = ",".join(str(analysis.pk) for analysis in analyses)
    return f"{reverse(f'analyses:{name}')}?ids={ids}&back={back}"


def left() -> set[int]:
    return set(Analysis.objects.values_list("pk", flat=True))


# What is selected


def test_numbers_are_unique_and_keep_their_order() -> None:
    assert ids_from(" 3,1, 3,,2") == [3, 1, 2]


@pytest.mark.parametrize("text", ["", "1,x", "9" * 30, "²"])
def test_an_invalid_selection_is_refused(text: str) -> None:
    with pytest.raises(BadSelection, match=r"Select at least one|is not the number"):
        ids_from(text)
    with pytest.raises(BadSelection, match="at most 200"):
        ids_from(",".join(map(str, range(201))))


def test_every_row_has_a_checkbox_and_the_bar_its_actions(page: Client, member: User) -> None:
    analysis = make_analysis(member)
    html = page.get(reverse("analyses:list")).content.decode()
    assert f'name="ids" value="{analysis.pk}" form="selection"' in html
    for action in ("compare", "tag", "delete"):
        assert f'name="action" value="{action}"' in html


def test_an_address_ticks_analyses_on_this_page_and_elsewhere(page: Client, member: User) -> None:
    here, other = make_analysis(member), make_analysis(member)
    html = page.get(f"{reverse('analyses:list')}?tick={here.pk},4711").content.decode()
    assert f'data-tick="{here.pk},4711"' in html
    assert f'id="select-{here.pk}" hx-preserve checked' in html
    assert f'id="select-{other.pk}" hx-preserve checked' not in html
    assert '<input type="hidden" name="ids" value="4711" data-elsewhere>' in html


def test_a_wrong_tick_in_an_address_ticks_nothing(page: Client, member: User) -> None:
    make_analysis(member)
    html = page.get(f"{reverse('analyses:list')}?tick=1,%3Cb%3E").content.decode()
    assert "data-tick" not in html
    assert "<b>" not in html


def test_the_bar_leads_to_the_actions_page(page: Client) -> None:
    assert choose(page, action="compare", ids=[5, 3, 9]) == "/compare/?ids=5,3,9"
    back = choose(page, action="tag", ids=[5, 3], back="model=bert")
    assert back == "/history/tag/?ids=5,3&back=model%3Dbert"
    assert page.get(reverse("analyses:selection"), {"action": "frame"}).status_code == 404


def test_an_address_may_repeat_its_ids(page: Client, member: User) -> None:
    analyses = [make_analysis(member, Status.SUCCEEDED) for _ in range(2)]
    first, second = (analysis.pk for analysis in analyses)
    page.post(f"{reverse('analyses:delete')}?ids={first}&ids={second}")
    assert left() == set()


def test_without_a_selection_the_history_comes_back_with_a_message(page: Client) -> None:
    query = {"action": "delete", "back": "model=bert&next=//evil.example"}
    response = page.get(reverse("analyses:selection"), query, follow=True)
    assert response.redirect_chain == [(f"{reverse('analyses:list')}?model=bert", 302)]
    assert "Select at least one analysis first." in response.content.decode()


@pytest.mark.parametrize("name", ["tag", "delete"])
def test_a_missing_analysis_is_named(page: Client, member: User, name: str) -> None:
    analysis = make_analysis(member)
    response = page.get(f"{address(name, analysis)},4711,4712".replace("&back=", ""))
    assert response.status_code == 404
    assert "There are no analyses 4711, 4712." in response.content.decode()


# Tags


def test_tags_can_be_added_and_removed(page: Client, member: User) -> None:
    analyses = [make_analysis(member), make_analysis(make_user("alan"))]
    add_tags(analyses[:1], ["old", "thesis"])
    where = address("tag", *analyses, back="tag%3Dold")
    response = page.post(where, {"tags": "Thesis, new", "action": "add"}, follow=True)
    assert response.redirect_chain[0][0] == f"{reverse('analyses:list')}?tag=old"
    assert "Added thesis, new to 2 analyses." in response.content.decode()
    assert [[tag.name for tag in analysis.tags.all()] for analysis in analyses] == [
        ["new", "old", "thesis"],
        ["new", "thesis"],
    ]
    page.post(where, {"tags": "thesis, unknown", "action": "remove"})
    assert not Analysis.objects.filter(tags__name="thesis").exists()
    assert Analysis.objects.filter(tags__name="new").count() == 2


def test_tags_are_required(page: Client, member: User) -> None:
    html = page.post(address("tag", make_analysis(member)), {"tags": ""}).content.decode()
    assert "This field is required." in html


# Deleting


def test_the_confirmation_lists_what_will_be_deleted(page: Client, member: User) -> None:
    analysis = make_analysis(member, Status.SUCCEEDED)
    add_log(analysis, "one", "two")
    write_labels(analysis, ["thesis"], "mine", member)
    html = page.get(address("delete", analysis, back="status%3Dfailed")).content.decode()
    assert "Delete 1 analysis?" in html
    assert f'href="{reverse("analyses:list")}?status=failed">Keep it' in html
    trials = analysis.trials.count()
    assert f"{trials} trials, 2 log lines, 1 note and 1 tag. This cannot be undone." in html
    assert left() == {analysis.pk}
    response = page.post(address("delete", analysis, back="status%3Dfailed"), follow=True)
    assert response.redirect_chain[0][0] == f"{reverse('analyses:list')}?status=failed"
    assert "1 analysis deleted." in response.content.decode()
    assert not left()
    for model in (Trial, LogLine, Note):
        assert not model._default_manager.exists()


def test_a_member_can_only_delete_their_own(page: Client, member: User) -> None:
    mine = make_analysis(member, Status.FAILED)
    other = make_analysis(make_user("alan"), Status.FAILED)
    html = page.get(address("delete", mine, other)).content.decode()
    assert "only alan or an admin can delete it" in html
    page.post(address("delete", mine, other))
    assert left() == {other.pk}
    html = page.post(address("delete", other)).content.decode()
    assert "None of these can be deleted" in html
    assert left() == {other.pk}


def test_an_admin_can_delete_any(client: Client, member: User) -> None:
    client.force_login(make_user("root", is_staff=True))
    client.post(address("delete", make_analysis(member, Status.LOST)))
    assert not left()


@pytest.mark.parametrize("status", sorted(set(Status) - set(FINAL_STATUSES)))
def test_unfinished_analyses_are_kept(page: Client, member: User, status: Status) -> None:
    analysis = make_analysis(member, status)
    html = page.post(address("delete", analysis)).content.decode()
    assert "it has not finished; cancel it first" in html
    assert left() == {analysis.pk}


def test_results_reused_from_a_deleted_analysis_stay(page: Client, member: User) -> None:
    first = make_analysis(member, Status.SUCCEEDED)
    again = make_analysis(member, Status.SUCCEEDED, answered_from=first)
    page.post(address("delete", first))
    again.refresh_from_db()
    assert again.answered_from is None
    assert page.get(reverse("analyses:detail", args=[again.pk])).status_code == 200


def test_viewing_the_confirmation_changes_nothing(page: Client, member: User) -> None:
    analysis = make_analysis(member, Status.FAILED)
    page.get(address("delete", analysis))
    page.head(address("delete", analysis))
    assert left() == {analysis.pk}
