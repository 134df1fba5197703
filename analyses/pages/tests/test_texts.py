"""Analyses about texts: how many can be generated, and the longest sequence in training."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from analyses.charts.by_length import picture_of_lengths
from analyses.jobs import lease
from analyses.models import Analysis, CountedSavings, Query, Status
from analyses.pages.new.values import default_values, values_of
from analyses.services import submit
from analyses.tests.factories import lease_on
from analyses.tests.text_answers import make_text_analysis, make_text_result
from engine.core.choices import Goal
from engine.interface.texts import SUGGESTED

GOALS = pytest.mark.parametrize("goal", [Goal.GENERATION, Goal.LENGTH])


def html_of(page: Client, address: str) -> str:
    return " ".join(page.get(address).content.decode().split())


def posted(page: Client, **fields: str) -> Any:
    return page.post("/new/", default_values() | {"model": "gpt2"} | fields)


def test_the_form_asks_for_texts_to_generate(page: Client) -> None:
    response = posted(
        page, ask="generation", texts_at_once="4", prompt_length="512", most_usd_per_hour="x",
        optimizer="no such", cpu_offload="on",
    )  # fmt: skip
    assert response.status_code == 302  # what belongs to other questions is no mistake
    stored = Analysis.objects.get()
    assert (stored.goal, stored.current_batch_size) == (Goal.GENERATION, 4)
    assert (stored.request["prompt_length"], stored.request["new_tokens"]) == (512, 256)


def test_the_form_asks_for_the_longest_sequence(page: Client) -> None:
    assert posted(page, ask="length", batch_to_check="2", lora_rank="8").status_code == 302
    stored = Analysis.objects.get()
    assert (stored.goal, stored.current_batch_size) == (Goal.LENGTH, 2)
    assert stored.request["lora_rank"] == 8


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"ask": "generation", "texts_at_once": "none"}, "texts_at_once"),
        ({"ask": "generation", "prompt_length": "0"}, "prompt_length"),
        ({"ask": "length", "batch_to_check": "0"}, "batch_to_check"),
    ],
)
def test_a_mistake_stands_at_its_input(page: Client, fields: dict[str, str], place: str) -> None:
    html = posted(page, **fields).content.decode()
    assert f'id="id_{place}_error"' in html
    assert not Analysis.objects.exists()


@pytest.mark.parametrize(
    ("question", "model"), [("generation", "bert"), ("generation", "resnet"), ("length", "vit-b")]
)
def test_models_that_suit_the_question_are_offered_before_and_after_it_is_sent(
    page: Client, question: str, model: str
) -> None:
    given = default_values() | {"ask": question, "model": model}
    for address in ("/new/preview/", "/new/"):
        html = page.post(address, given).content.decode()
        offers = re.findall(r'href="/new/\?ask=(\w+)&amp;model=([\w.-]+)" data-offer', html)
        assert offers == [(question, name) for name in SUGGESTED[Goal(question)]]
    for _, offered in offers:
        shown = page.post("/new/preview/", given | {"model": offered, "prompt_length": "256"})
        assert "The settings are complete. Select Find the l" in shown.content.decode()
    assert not Analysis.objects.exists()


def test_the_search_knows_which_models_suit_which_question(page: Client) -> None:
    html = page.get("/new/").content.decode()
    for model, goals in [("bert", "generation"), ("resnet", "generation length"), ("gpt2", "")]:
        assert f'data-unsuited="{goals}"' in html.split(f'name="model" value="{model}"')[1][:2000]


@GOALS
def test_a_result_is_stored_with_its_columns_and_counts_no_savings(
    member: User, goal: Goal
) -> None:
    fields = {"model": "gpt2", "gpu": "a10", "goal": goal, "current_batch_size": 8}
    fields |= {"prompt_length": 512} if goal is Goal.GENERATION else {}
    submitted = submit(member, fields)
    lease.finish(lease_on(submitted), make_text_result(goal))
    stored = Analysis.objects.get(pk=submitted.pk)
    assert stored.status == Status.SUCCEEDED
    assert stored.longest_tokens
    assert (stored.largest_batch_size is None) is (goal is Goal.LENGTH)
    assert not CountedSavings.objects.exists()
    again = submit(member, fields)
    assert (again.status, again.answered_from) == (Status.SUCCEEDED, stored)
    assert again.longest_tokens == stored.longest_tokens


@GOALS
def test_the_page_says_what_fits_how_sure_and_why(page: Client, member: User, goal: Goal) -> None:
    analysis = make_text_analysis(member, goal)
    html = html_of(page, f"/{analysis.pk}/")
    result = make_text_result(goal)
    order = [result.decision, "Memory ±6%", result.limited_by, "Memory by length", "Caveats"]
    places = [html.index(part) for part in order]
    assert places == sorted(places)
    assert ("Memory by texts at once" in html) is (goal is Goal.GENERATION)
    assert f"{result.longest_tokens:,}" in html
    assert "What helps most" not in html
    assert "Adopt" not in html
    assert "surely fit; " in html
    assert not Query.objects.exists()


def test_the_longest_has_its_condition_in_the_picture() -> None:
    result = make_text_result(Goal.LENGTH)
    found = result.longest
    assert found
    for high, name in (
        (found.gpu.total_bytes, "longest that surely fits"),
        (found.gpu.total_bytes + 1, "longest that may fit"),
    ):
        lengths = [
            replace(one, trial=replace(one.trial, device_used_high_bytes=high))
            for one in found.lengths
        ]
        picture = picture_of_lengths(result, lengths, found.gpu, None)
        assert picture
        assert [mark.name for mark in picture.marks] == [f"{name} {found.length:,}"]
        assert picture.description.endswith(f"is the {name}.")


@pytest.mark.parametrize(
    ("goal", "name"),
    [(Goal.GENERATION, "Texts at once"), (Goal.GENERATION, "Longest at batch 8"),
     (Goal.LENGTH, "Longest sequence")],
)  # fmt: skip
def test_what_surely_fits_comes_first(page: Client, member: User, goal: Goal, name: str) -> None:
    html = html_of(page, f"/{make_text_analysis(member, goal).pk}/")
    result = make_text_result(goal)
    if (found := result.generation) is not None:
        limits = {
            "Texts at once": (found.surely_fits, found.largest_batch_size),
            "Longest at batch 8": (found.longest_that_surely_fits, found.longest_length),
        }
    else:
        assert result.longest is not None
        limits = {"Longest sequence": (result.longest.surely_fits, result.longest.length)}
    sure, most = limits[name]
    assert 0 < sure < most
    first = html.split(f"<dt>{name}</dt>")[1].split("</div>")[0]
    assert f'<span class="figure">{sure:,}</span>' in first
    assert f"surely fit; up to {most:,} may; " in first


def test_a_requested_batch_that_does_not_fit_is_no_failure(page: Client, member: User) -> None:
    analysis = make_text_analysis(member)
    stored = make_text_result().to_dict()
    stored = json.loads(json.dumps(stored))
    stored["generation"]["trial"] = stored["generation"]["batches"][-1]
    Analysis.objects.filter(pk=analysis.pk).update(result=stored)
    assert "decision-problem" in html_of(page, f"/{analysis.pk}/")


@GOALS
def test_it_is_in_the_history_in_comparisons_and_behind_share_links(
    page: Client, member: User, goal: Goal
) -> None:
    analysis, other = make_text_analysis(member, goal), make_text_analysis(member, goal)
    tokens = f"{analysis.longest_tokens:,}"
    assert f"at most {tokens} tokens" in html_of(page, "/history/")
    (row, _) = json.loads(b"".join(page.get("/history/export.json?columns=longest")))
    assert (row["goal"], row["longest_tokens"]) == (goal, analysis.longest_tokens)
    compared = html_of(page, f"/compare/?ids={analysis.pk},{other.pk}&all=1")
    assert "Longest text" in compared
    assert tokens in compared
    made = page.post(f"/{analysis.pk}/share/", {"days": "7"})
    (address,) = set(re.findall(r"/shared/[\w-]+/", made.content.decode()))
    Client.logout(page)
    assert make_text_result(goal).decision in html_of(page, address)


@GOALS
def test_a_duplicate_asks_the_same(member: User, goal: Goal) -> None:
    values = values_of(make_text_analysis(member, goal).request)
    assert values["ask"] == goal
    assert values["texts_at_once" if goal is Goal.GENERATION else "batch_to_check"] == "8"


@GOALS
def test_the_page_has_the_command(page: Client, member: User, goal: Goal) -> None:
    verb = "generate" if goal is Goal.GENERATION else "longest"
    html = html_of(page, f"/{make_text_analysis(member, goal).pk}/")
    command = html.split(f"memorymark {verb} gpt2 ")[1].split("<")[0]
    assert "--batch-size 8" in command
    assert "--goal" not in command
    assert ("--prompt-length 512" in command) is (goal is Goal.GENERATION)


def test_the_api_takes_the_goal_and_sends_the_result(page: Client, member: User) -> None:
    body = {"model": "gpt2", "gpu": "a10", "goal": "generation", "current_batch_size": 8}
    body["prompt_length"] = 512
    sent = page.post("/api/v1/analyses/", body, content_type="application/json")
    assert sent.status_code == 201
    assert sent.json()["goal"] == "generation"
    found = page.get(f"/api/v1/analyses/{make_text_analysis(member).pk}/").json()
    assert found["longest_tokens"] == found["result"]["generation"]["longest_length"]
    assert found["result"]["limited_by"]


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"goal": "generation", "gpu": "any", "prompt_length": 512}, "gpu"),
        ({"goal": "generation", "model": "resnet"}, "model"),
        ({"goal": "length", "current_batch_size": None}, "current_batch_size"),
        ({"goal": "everything"}, "goal"),
        ({"prompt_length": 5}, "prompt_length"),
        ({"goal": "length", "batching": "longest", "sample_lengths": "max=99"}, "batching"),
    ],
)
def test_the_api_refuses_what_does_not_go_together(
    page: Client, fields: dict[str, object], wrong: str
) -> None:
    body = {"model": "gpt2", "gpu": "a10", **fields}
    sent = page.post("/api/v1/analyses/", body, content_type="application/json")
    assert sent.status_code == 400
    assert wrong in sent.json()["errors"]


def test_a_query_is_about_a_batch(page: Client) -> None:
    body = {"model": "gpt2", "gpu": "a10", "goal": "length", "current_batch_size": 8}
    sent = page.post("/api/v1/predict/", body, content_type="application/json")
    assert sent.status_code == 400
    assert "goal" in sent.json()["errors"]
