from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser, User
from django.test import Client
from django.urls import reverse
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase

from analyses.models import Analysis, Status
from analyses.pages.history.labels import add_tags
from analyses.pages.history.views import save_view
from analyses.pages.palette.entries import MAX_OF_A_KIND, PAGES, Rank, entries_for
from analyses.tests.factories import make_analysis, make_result, make_user, make_viewer

pytestmark = pytest.mark.database


def titles(user: User, text: str, kind: str = "") -> list[str]:
    return [entry.title for entry in entries_for(user, text) if kind in ("", entry.kind)]


def numbered(owner: User, *numbers: int) -> None:
    stored = make_analysis(owner, Status.SUCCEEDED, make_result())
    for number in numbers:
        stored.pk = number
        stored.save(force_insert=True)
    Analysis.objects.exclude(pk__in=numbers).delete()


@pytest.mark.parametrize("text", ["14", "#14"])
def test_a_number_finds_its_analysis_first_and_then_those_that_begin_with_it(
    member: User, text: str
) -> None:
    numbered(member, 7, 14, 140, 1409, 214)
    found = titles(member, text, "Analysis")
    assert found == ["#14 BERT base", "#140 BERT base", "#1409 BERT base"]
    assert titles(member, text)[0] == "#14 BERT base"


def test_whole_names_come_before_beginnings_and_these_before_parts(member: User) -> None:
    make_analysis(member)
    make_analysis(make_user("bert"))
    ranks = [entry.rank for entry in entries_for(member, "bert")]
    assert ranks == sorted(ranks)
    assert titles(member, "bert")[0] == "bert"
    assert entries_for(member, "bert")[0].rank is Rank.EXACT
    names = titles(member, "bert", "Model")
    assert names.index("BERT large") < names.index("bert")  # a type of transformers
    assert titles(member, "distil")[0] == "DistilBERT base"


def test_analyses_are_found_as_the_history_finds_them(member: User) -> None:
    alan = make_user("alan")
    ours = make_analysis(member)
    theirs = make_analysis(alan)
    add_tags([theirs], ["thesis"])
    for text in ("member:alan", "tag=thesis", "alan", "model:bert -member:grace"):
        assert titles(member, text, "Analysis") == [f"#{theirs.pk} BERT base"], text
    assert f"#{ours.pk} BERT base" in titles(member, "bert", "Analysis")


def test_a_term_that_is_not_searched_still_finds_other_things(member: User) -> None:
    save_view(member, "year: 2026", "q=this-year", is_shared=False)
    assert titles(member, "year: 2026")[0] == "year: 2026"


@pytest.mark.longer
def test_an_entry_leads_where_it_says(client: Client, member: User) -> None:
    make_analysis(member)
    save_view(member, "Mine", "member=grace", is_shared=False)
    client.force_login(member)
    for text in ("bert", "grace", "mine", "savings", "1"):
        for entry in entries_for(member, text):
            assert client.get(entry.address).status_code == 200, entry


def test_without_a_text_it_offers_your_latest_analyses_and_pages(member: User) -> None:
    make_analysis(make_user("alan"))
    mine = [make_analysis(member) for _ in range(MAX_OF_A_KIND + 1)]
    found = titles(member, "  ")
    assert found[:2] == [f"#{mine[-1].pk} BERT base", f"#{mine[-2].pk} BERT base"]
    assert found[MAX_OF_A_KIND:] == [page.title for page in PAGES[:MAX_OF_A_KIND]]


@pytest.mark.longer
def test_pages_are_offered_to_those_who_may_open_them(client: Client, member: User) -> None:
    admin = make_user("root", is_staff=True)
    for user in (member, make_viewer(), admin):
        client.force_login(user)
        for page in PAGES:
            may = client.get(reverse(page.view)).status_code == 200
            assert (page.title in titles(user, page.title, "Page")) == may, (user, page)


def test_a_viewer_is_offered_no_new_analysis(member: User) -> None:
    make_analysis(member)
    notes = {entry.note for entry in entries_for(make_viewer(), "bert")}
    assert "its analyses" in notes
    assert "new analysis" not in notes
    assert "new analysis" in {entry.note for entry in entries_for(member, "bert")}


def test_others_saved_views_are_found_if_they_are_shared(member: User) -> None:
    alan = make_user("alan")
    save_view(alan, "weekly, his", "", is_shared=False)
    save_view(alan, "weekly, ours", "", is_shared=True)
    assert titles(member, "weekly", "Saved view") == ["weekly, ours"]


def test_strangers_and_deactivated_members_find_nothing(member: User) -> None:
    make_analysis(member)
    member.is_active = False
    assert entries_for(member, "bert") == []
    assert entries_for(AnonymousUser(), "bert") == []  # type: ignore[arg-type]  # nobody


def test_no_kind_hides_the_others(member: User) -> None:
    for _ in range(3 * MAX_OF_A_KIND):
        make_analysis(member)
    assert len(titles(member, "bert", "Analysis")) == MAX_OF_A_KIND
    assert titles(member, "bert", "Model")


def get(client: Client, text: str, **headers: Any) -> str:
    response = client.get(reverse("analyses:search"), {"q": text}, headers=headers)
    assert response.status_code == 200
    return response.content.decode()


def test_the_page_is_a_list_of_links_and_htmx_gets_options(client: Client, member: User) -> None:
    client.force_login(member)
    pk = make_analysis(member).pk
    html = get(client, f"#{pk}")
    assert re.search(rf'<li><a href="/{pk}/"><span class="palette-title">#{pk} BERT base', html)
    found = get(client, f"#{pk}", HX_Request="true", HX_Target="palette-found")
    assert "<html" not in found
    assert (
        f'role="option" id="palette-1" aria-selected="false" tabindex="-1" href="/{pk}/"' in found
    )
    assert f'data-of="#{pk}"' in found


def test_a_search_that_finds_nothing_or_is_too_long_says_so(client: Client, member: User) -> None:
    client.force_login(member)
    assert "at most 200 characters" in get(client, "x" * 201)
    assert "Null characters are not allowed" in get(client, "\0")
    assert "All analyses for “&lt;b&gt;”" in get(client, "<b>")


class AnyText(TestCase):
    @pytest.mark.longer
    @given(st.text(alphabet=st.characters(exclude_characters="\0"), max_size=60))
    def test_any_text_is_answered_and_the_best_come_first(self, text: str) -> None:
        user = User.objects.filter(username="grace").first() or make_user("grace")
        if not Analysis.objects.exists():
            make_analysis(user)
        ranks = [entry.rank for entry in entries_for(user, text)]
        assert not text.split() or ranks == sorted(ranks)
