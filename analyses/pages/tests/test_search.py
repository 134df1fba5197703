"""The search of the history: its terms, what they find, and its chips."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from django.utils.html import escape
from hypothesis import event, given
from hypothesis import strategies as st

from analyses.models import Analysis, Status
from analyses.pages.history import labels
from analyses.pages.history.search import matching
from analyses.pages.history.terms import (
    PERIODS,
    Key,
    Relation,
    Switch,
    Term,
    UnknownTerm,
    days_of,
    joined,
    parse,
)
from analyses.tests.factories import make_analysis, make_request, make_result, make_user

pytestmark = pytest.mark.database

URL = "/api/v1/analyses/"
HTMX = {"HX-Request": "true", "HX-Target": "results"}


def test_a_search_is_read_as_terms() -> None:
    assert parse('model:ViT tag:"chapter two" -adopted last-month "adopted" 12') == [
        Term(Key.MODEL, "vit"),
        Term(Key.TAG, "chapter two", is_quoted=True),
        Term(None, "adopted", is_without=True),
        Term(None, "last-month"),
        Term(None, "adopted", is_quoted=True),
        Term(None, "12"),
    ]
    assert parse("  - -- adopted adopted ") == [Term(None, "adopted")]


def test_a_term_says_how_its_key_relates_to_the_value() -> None:
    assert parse("model=bert gpu!=t4 -gpu!=l4 speedup>=1.2 batch:64 status=failed") == [
        Term(Key.MODEL, "bert", Relation.IS),
        Term(Key.GPU, "t4", Relation.IS, is_without=True),
        Term(Key.GPU, "l4", Relation.IS),
        Term(Key.SPEEDUP, "1.2", Relation.AT_LEAST),
        Term(Key.BATCH, "64", Relation.IS),
        Term(Key.STATUS, "failed"),
    ]


@given(
    st.lists(
        st.sampled_from([*Key, *Relation, *Switch, "!", "-", '"', " ", "a", "1", "2026-01-01"]),
        max_size=12,
    ).map("".join)
)
def test_terms_read_the_same_again(text: str) -> None:
    try:
        terms = parse(text)
    except UnknownTerm:
        event("not understood")
    else:
        assert parse(joined(terms)) == terms


@given(st.dates(date(2000, 1, 31), date(2100, 1, 1)), st.sampled_from(PERIODS))
def test_a_period_is_whole_and_not_in_the_future(today: date, period: str) -> None:
    first, last = days_of(period, today)
    assert first <= last <= today
    assert last == today or period.startswith(("last-", "yesterday"))


@pytest.mark.parametrize(
    ("period", "first", "last"),
    [
        ("last-7-days", date(2026, 3, 26), date(2026, 4, 1)),
        ("last-week", date(2026, 3, 23), date(2026, 3, 29)),
        ("this-week", date(2026, 3, 30), date(2026, 4, 1)),
        ("last-month", date(2026, 3, 1), date(2026, 3, 31)),
        ("last-quarter", date(2026, 1, 1), date(2026, 3, 31)),
        ("last-year", date(2025, 1, 1), date(2025, 12, 31)),
    ],
)
def test_the_days_of_a_period(period: str, first: date, last: date) -> None:
    assert days_of(period, date(2026, 4, 1)) == (first, last)


# What they find


@pytest.fixture
def lab(member: User) -> dict[str, Analysis]:
    alan = make_user("alan")
    analyses = {
        "gain": make_analysis(member, Status.SUCCEEDED, make_result(), adopted_at=timezone.now()),
        "none": make_analysis(member, Status.SUCCEEDED, make_result(recommended=16)),
        "failed": make_analysis(alan, Status.FAILED, request=make_request(model="gpt2", gpu="t4")),
        "old": make_analysis(
            alan, measured_gpu="NVIDIA H200", gpu="local", request=make_request(model="vit-b")
        ),
    }
    labels.add_tags([analyses["gain"]], ["chapter two"])
    labels.write_labels(analyses["failed"], [], "It crashed at night.", member)
    Analysis.objects.filter(pk=analyses["old"].pk).update(
        queued_at=datetime(2026, 1, 31, 23, 59, tzinfo=UTC)
    )
    return analyses


@pytest.mark.parametrize(
    ("search", "found"),
    [
        ("model:gpt", ["failed"]),
        ("model:gpt-2 member:ala", ["failed"]),
        ("member:ala", ["old", "failed"]),
        ("-member:ala", ["none", "gain"]),
        ("model=gpt", []),
        ("model=gpt2", ["failed"]),
        ('model="gpt-2"', ["failed"]),
        ("model!=gpt2 member!=grace", ["old"]),
        ("member=alan", ["old", "failed"]),
        ("gpu:h200", ["old"]),
        ('gpu="nvidia h200"', ["old"]),
        ("gpu=t4", ["failed"]),
        ("precision=fp3", []),
        ("optimizer=adamw -optimizer:sgd", ["old", "failed", "none", "gain"]),
        ("tag=chapter", []),
        ('tag="chapter two"', ["gain"]),
        ('note="it crashed at night."', ["failed"]),
        ("speedup>1.2", ["gain"]),
        ("speedup<=1.2", ["none"]),
        ("-speedup>1.2 batch=16", ["none"]),
        ("status:failed", ["failed"]),
        ("precision:fp32 -status:succeeded", ["old", "failed"]),
        ('tag:"chapter two"', ["gain"]),
        ("-tag:chapter", ["old", "failed", "none"]),
        ("note:crashed", ["failed"]),
        ("adopted", ["gain"]),
        ('"adopted"', []),
        ("gain", ["gain"]),
        ("-gain status:succeeded", ["none"]),
        ("-gain", ["old", "failed", "none"]),
        ("imported", []),
        ("-imported", ["old", "failed", "none", "gain"]),
        ("before:2026-01-31", []),
        ("before:2026-02-01", ["old"]),
        ("after:2026-01-31 gain", ["gain"]),
        ("after:2026-01-30 before:2026-02-01", ["old"]),
        ("last-7-days member:ala", ["failed"]),
        ("software:9.9.9", []),
    ],
)
def test_page_and_api_find_what_the_terms_say(
    page: Client, lab: dict[str, Analysis], search: str, found: list[str]
) -> None:
    expected = [lab[name].pk for name in found]
    assert sorted(row["id"] for row in page.get(URL, {"q": search}).json()["results"]) == sorted(
        expected
    )
    html = page.get(reverse("analyses:list"), {"q": search}).content.decode()
    assert [f'id="analysis-{pk}"' in html for pk in expected] == [True] * len(expected)
    assert html.count('id="analysis-') == len(expected)


@pytest.mark.parametrize(
    ("search", "message"),
    [
        ("owner:ada", "“owner:” is not searched. Use model, member"),
        ("status:asleep", "There is no status “asleep”. Use queued"),
        ("after:yesterday", "Enter a day as in after:2026-03-31."),
        ("model:", "Enter a value after “model:”."),
        ("model!=", "Enter a value after “model!=”."),
        ("model>bert", "“model” is not a number. Use “model:” or “model=”."),
        ("speedup>fast", "Enter a number as in speedup>1.5."),
    ],
)
def test_a_term_that_is_not_understood_stays_in_the_search_with_the_reason(
    page: Client, lab: dict[str, Analysis], search: str, message: str
) -> None:
    html = page.get(reverse("analyses:list"), {"q": search}).content.decode()
    assert escape(message) in html
    assert f'value="{escape(search)}"' in html
    assert 'id="analysis-' not in html
    answer = page.get(URL, {"q": search})
    assert answer.status_code == 400
    assert message in answer.content.decode()


# Chips


def chips_in(html: str) -> dict[str, str]:
    """The addresses of the chips by their texts."""
    bar = html.split('id="search-bar"')[1].split("<input")[0]
    found = {}
    for part in bar.split('<a class="label" href="')[1:]:
        text = part.split("</span>")[1].split("<span")[0].strip()
        found[text] = part.split('"')[0].replace("&amp;", "&")
    return found


def test_terms_and_filters_are_chips_that_lead_to_the_address_without_them(
    page: Client, lab: dict[str, Analysis]
) -> None:
    query = {"q": "model:gpt adopted", "gpu": "t4", "sort": "-speedup"}
    html = page.get(reverse("analyses:list"), query).content.decode()
    assert chips_in(html) == {
        "model:gpt": "/history/?q=adopted&gpu=t4&sort=-speedup",
        "adopted": "/history/?q=model%3Agpt&gpu=t4&sort=-speedup",
        "GPU: NVIDIA T4": "/history/?q=model%3Agpt+adopted&sort=-speedup",
    }


def test_what_is_typed_is_added_to_the_terms_that_are_there(
    page: Client, lab: dict[str, Analysis]
) -> None:
    answer = page.get(reverse("analyses:list"), {"q": ["model:gpt", "Adopted"]}, headers=HTMX)
    assert answer["HX-Push-Url"] == "/history/?q=model%3Agpt+adopted"
    html = answer.content.decode()
    assert set(chips_in(html)) == {"model:gpt", "adopted"}
    assert 'hx-swap-oob="true"' in html
    assert 'name="q" value="model:gpt adopted"' in html


def test_a_period_replaces_the_one_before(page: Client, lab: dict[str, Analysis]) -> None:
    html = page.get(reverse("analyses:list"), {"q": "adopted last-month"}).content.decode()
    assert 'href="?q=adopted+this-year">this-year' in html


def test_the_browser_is_offered_terms_of_this_lab(page: Client, lab: dict[str, Analysis]) -> None:
    html = page.get(reverse("analyses:list")).content.decode()
    offered = html.split('id="search-terms"')[1].split("</datalist>")[0]
    for term in ("model:bert", "member:alan", "gpu:t4", "status:failed", *Switch, *PERIODS):
        assert f'<option value="{term}">' in offered


def test_a_value_that_is_part_of_another_is_offered_exactly_too(
    page: Client, lab: dict[str, Analysis], member: User
) -> None:
    make_analysis(member, request=make_request(model="deberta-v3"))
    html = page.get(reverse("analyses:list")).content.decode()
    assert '<option value="model=bert">' in html
    assert '<option value="model=deberta-v3">' not in html


def test_only_a_gain_is_green(page: Client, lab: dict[str, Analysis]) -> None:
    html = page.get(reverse("analyses:list"), {"q": "status:succeeded"}).content.decode()
    assert html.count('<strong class="good">') == 1


@pytest.mark.skipif(connection.vendor != "sqlite", reason="PostgreSQL plans by statistics")
@pytest.mark.parametrize(
    ("text", "plan"),
    [
        ("speedup>1.5", "COVERING INDEX"),
        ("speedup>1.5 largest>300", "COVERING INDEX"),
        ("after:2026-01-01 before:2026-02-01", "(queued_at>? AND queued_at<?)"),
    ],
)
@pytest.mark.django_db
def test_a_search_stays_within_an_index(text: str, plan: str) -> None:
    found = matching(Analysis.objects.all(), text).values("pk")
    assert plan in found.explain()
    assert plan in found.order_by().explain()
