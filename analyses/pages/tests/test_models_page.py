"""The models page: every model type of transformers, what is predicted of it and what not."""

from __future__ import annotations

import re
from html import unescape

import pytest
from django.test import Client

from analyses.pages.models import PAGE_SIZE
from analyses.tests.factories import make_viewer
from engine.models.architectures import ARCHITECTURES
from engine.models.coverage import Coverage, checked_with, model_types
from engine.models.presets import PRESETS
from engine.models.tasks import Task, spoken

MODELS = "/models/"
HTMX = {"HX-Request": "true", "HX-Target": "results"}


def listed(page: Client, query: str = "") -> list[str]:
    """The model types that are listed, from one page to the next."""
    found: list[str] = []
    address: str | None = query
    while address is not None:
        html = page.get(f"{MODELS}{address}").content.decode()
        on_page = re.findall(r'scope="row"><code>([^<]+)</code>', html)
        assert len(on_page) <= PAGE_SIZE
        found += on_page
        following = re.search(r'rel="next" href="([^"]+)"', html)
        address = unescape(following[1]) if following else None
    return found


def test_every_type_is_listed_and_counted(page: Client) -> None:
    assert listed(page) == sorted(ARCHITECTURES)
    html = page.get(MODELS).content.decode()
    found = Coverage.of(ARCHITECTURES.values())
    assert f"{found.predicted_types:,} <small>of {found.types:,}</small>" in html
    assert f"{found.predicted_pairs:,} <small>of {found.pairs:,}</small>" in html
    assert checked_with() in html


def test_a_refused_task_has_its_reason_and_a_preset_leads_to_the_form(page: Client) -> None:
    refused = ARCHITECTURES["xlm"].refused[Task.CAUSAL_LANGUAGE_MODELLING]
    assert refused in page.get(f"{MODELS}?q=xlm").content.decode()
    html = page.get(f"{MODELS}?q=clip").content.decode()
    assert 'href="/new/?model=clip"' in html
    assert PRESETS["clip"].display_name in html


def test_a_viewer_sees_presets_without_links_to_the_form(client: Client, db: None) -> None:
    client.force_login(make_viewer())
    html = client.get(f"{MODELS}?q=clip").content.decode()
    assert PRESETS["clip"].display_name in html
    assert "/new/" not in html


@pytest.mark.parametrize(
    ("typed", "found"),
    [("GPT Neo", "gpt_neo"), ("gpt_neo", "gpt_neo"), ("openai-community", "gpt2"), ("vit", "vit")],
)
def test_a_type_is_found_by_its_name_or_by_those_of_its_presets(
    page: Client, typed: str, found: str
) -> None:
    types = listed(page, f"?q={typed}")
    assert found in types
    assert len(types) < 20


@pytest.mark.parametrize("task", Task)
def test_filters_leave_the_pairs_of_a_task_that_are_predicted_or_are_not(
    page: Client, task: Task
) -> None:
    predicted = listed(page, f"?task={task}&only=predicted")
    assert predicted == sorted(name for name, known in ARCHITECTURES.items() if task in known.tasks)
    refused = listed(page, f"?task={task}&only=refused")
    assert refused == sorted(name for name, known in ARCHITECTURES.items() if task in known.refused)
    others = [spoken(one) for one in Task if one is not task]
    html = page.get(f"{MODELS}?task={task}", headers=HTMX).content.decode()
    assert not any(f"<li>{other}<" in html for other in others)


def test_htmx_gets_the_results_alone_and_the_address_of_the_search(page: Client) -> None:
    response = page.get(f"{MODELS}?q=whisper&task=&only=", headers=HTMX)
    assert response.headers["HX-Replace-Url"] == f"{MODELS}?q=whisper"
    assert response.content.decode().lstrip().startswith('<div id="results">')
    assert page.get(MODELS, headers=HTMX).headers["HX-Replace-Url"] == MODELS


@pytest.mark.parametrize("query", ["?q=skynet", "?task=juggling", "?only=sometimes"])
def test_what_there_is_not_lists_nothing_and_leads_back(page: Client, query: str) -> None:
    response = page.get(f"{MODELS}{query}")
    assert response.status_code == 200
    html = response.content.decode()
    assert "No matching model types" in html
    assert ("is not one of the available choices" in html) == ("q=" not in query)


def test_the_form_leads_to_the_list(page: Client) -> None:
    html = page.get("/new/").content.decode()
    assert '<a href="/models/">Which models?</a>' in html


def test_every_preset_stands_beside_its_type() -> None:
    assert sorted(name for one in model_types() for name in one.presets) == sorted(
        name for name, preset in PRESETS.items() if not preset.package
    )
