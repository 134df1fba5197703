"""Under the decision: two bars, three cards, and links to what the page has."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from django.contrib.auth.models import User
from django.test import Client

from analyses.charts.breakdown import memory_bars
from analyses.models import Status
from analyses.pages.analysis.first_screen import FirstScreen, first_screen
from analyses.pages.analysis.sharing import create_link
from analyses.savings.estimate import estimate_figures
from analyses.tests.factories import make_analysis, make_request, make_result, make_trial
from analyses.tests.query_answers import make_moved_result
from engine.answer.amounts import Answered
from engine.core.sizes import gib
from engine.interface.result import AnalysisResult
from engine.interface.trial import Source, Trial

TOTAL = make_result().gpu.total_bytes


def shown(result: AnalysisResult, price: float | None = 0.86) -> FirstScreen:
    answered = Answered(result=result, price_per_hour_usd=price)
    return first_screen(answered, memory_bars(result))


def test_the_red_bar_is_todays_batch_with_what_it_leaves_unused_and_the_green_one_is_then() -> None:
    result = make_result()
    today, then = shown(result).bars
    assert (today.role, then.role) == ("current", "recommended")
    assert (today.title, then.title) == ("Today: batch 16", "Then: batch 128")
    free = result.current_headroom_bytes or 0
    assert today.rest.startswith(f"fits, {gib(free)} unused (")
    assert f" of {gib(result.gpu.total_bytes)} (" in today.used
    assert 0 < today.width < then.width < then.limit == 100


def test_a_kept_batch_has_one_bar() -> None:
    (bar,) = shown(make_result(current=128)).bars
    assert (bar.role, bar.title) == ("recommended", "Today and then: batch 128")


def test_a_batch_that_does_not_fit_says_how_much_it_lacks() -> None:
    today, then = shown(make_result(current=384)).bars
    assert today.rest.startswith("does not fit, ")
    assert today.rest.endswith("GiB too much")
    assert today.width == 100
    assert then.width < then.limit < 100


def unsure(batch_size: int) -> Trial:
    """A batch that fits, but not at the high end of its prediction."""
    return replace(make_trial(batch_size), device_used_high_bytes=TOTAL + 2**30)


@pytest.mark.parametrize(("current", "tones"), [(128, ["unsure"]), (16, ["current", "unsure"])])
def test_a_batch_that_only_may_fit_is_neither_unused_nor_green(
    current: int, tones: list[str]
) -> None:
    others = [] if current == 128 else [make_trial(current)]
    trials = [*others, unsure(128)]
    bars = shown(make_result(current=current, trials=trials, curve=[])).bars
    assert [bar.tone for bar in bars] == tones
    assert bars[-1].rest == "may fit, or need up to 1.00 GiB more"


def test_a_batch_that_fails_within_the_gpus_memory_leaves_nothing_unused() -> None:
    failed = replace(make_trial(16), fits=False)
    today, _ = shown(make_result(trials=[failed, make_trial(128)], curve=[])).bars
    assert today.rest == "does not fit"


def test_moves_are_named_on_the_green_bar() -> None:
    assert shown(make_moved_result()).bars[-1].title.endswith("with the changes")


def test_without_a_known_memory_there_is_no_bar() -> None:
    bare = replace(
        make_trial(128), peak_allocated_bytes=None, peak_reserved_bytes=None, device_used_bytes=None
    )
    assert shown(make_result(current=128, trials=[bare], curve=[])).bars == []


def test_the_cards_are_speedup_cost_and_savings_with_their_sources() -> None:
    result = make_result()
    cards = shown(result).cards
    assert cards == estimate_figures(result)[:3]
    assert [card.label for card in cards] == [
        "Speedup", "Cost per run", "Potential savings per year",
    ]  # fmt: skip
    assert all(card.sources for card in cards)


@pytest.mark.parametrize("current", [None, 384])
def test_where_nothing_compares_the_cards_are_about_the_batch_itself(current: int | None) -> None:
    speed, cost, largest = shown(make_result(current=current)).cards
    assert speed.label == "Samples per second"
    assert speed.note.startswith("at batch 128")
    assert cost.value.startswith("$")
    assert cost.sources == (Source.PREDICTED, Source.ASSUMED)
    assert largest.note.startswith("that fits")


def _first_screen(html: str) -> str:
    return html.split('id="decision"')[1].split("</section>")[0]


@pytest.mark.django_db
def test_page_and_share_link_have_the_same_first_screen(client: Client, member: User) -> None:
    analysis = make_analysis(member, Status.SUCCEEDED, make_result())
    client.force_login(member)
    pages = [client.get(f"/{analysis.pk}/?runs_per_year=7").content.decode()]
    _, token = create_link(analysis, member, days=7)
    pages.append(Client().get(f"/shared/{token}/").content.decode())
    firsts = [re.findall(r'class="figure-value">([^<]+)<', _first_screen(page)) for page in pages]
    assert firsts[0] == firsts[1]
    assert len(firsts[0]) == 3
    for page in pages:
        assert _first_screen(page).count("use-used") == 2
        for part in re.findall(r'href="#([a-z]+)"', page.split('class="sections"')[1][:900]):
            assert f'id="{part}"' in page, part


@pytest.mark.django_db
@pytest.mark.parametrize("source", [Source.PREDICTED, Source.MEASURED])
def test_each_bar_and_card_names_its_source(client: Client, member: User, source: Source) -> None:
    analysis = make_analysis(member, Status.SUCCEEDED, make_result(source=source))
    client.force_login(member)
    first = _first_screen(client.get(f"/{analysis.pk}/").content.decode())
    assert first.split("use-bars")[1].count(f"badge-{source}") == 5
    assert first.count("badge-assumed") == 2


@pytest.mark.django_db
def test_the_headline_names_no_build_that_the_gpu_does_not_run(
    client: Client, member: User
) -> None:
    result = make_result(software={"torch": "2.13.0+cpu", "transformers": "5.23.0"})
    analysis = make_analysis(member, Status.SUCCEEDED, result, request=make_request())
    client.force_login(member)
    first = _first_screen(client.get(f"/{analysis.pk}/").content.decode())
    assert "torch 2.13.0." in first
    assert "+cpu" not in first
