from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from analyses import services
from analyses.jobs import lease, worker
from analyses.jobs.nodes import environment_here
from analyses.models import Analysis, Status
from analyses.pages.analysis.answer import environment_rows, global_batch_advice, verdict_of
from analyses.pages.analysis.views import LONG_WAIT_SECONDS, state_of
from analyses.savings.estimate import estimate_figures
from analyses.tests.factories import (
    make_analysis,
    make_global_batch,
    make_lengths,
    make_request,
    make_result,
)
from engine.answer.worth import has_gain
from engine.core.choices import Parallelism
from engine.interface.result import AnalysisResult, MeasuredOn, Savings
from engine.interface.trial import Source
from engine.interface.workload import Workload


def assumed(result: AnalysisResult) -> Savings:
    assert result.savings is not None
    return result.savings


def test_every_key_number_and_card_says_where_it_comes_from() -> None:
    result = make_result()
    for figure in estimate_figures(result):
        assert figure.sources
    _, cost, savings, energy = estimate_figures(result)
    assert cost.sources == savings.sources == energy.sources == (Source.PREDICTED, Source.ASSUMED)


def test_a_current_batch_that_does_not_fit_has_no_speedup() -> None:
    speedup, cost, savings = estimate_figures(make_result(current=384))
    assert speedup.value == "none"
    assert "no speed to compare with" in speedup.note
    assert (cost.value, savings.value) == ("\N{EN DASH}", "\N{EN DASH}")


def test_a_speedup_inside_the_noise_is_no_gain() -> None:
    result = make_result(current=120, recommended=128)
    assert result.speedup is not None
    assert 1 < result.speedup < 1.02
    assert not has_gain(result)
    speedup, cost, savings, _ = estimate_figures(result)
    assert speedup.value == "no gain"
    assert "within the noise" in speedup.note
    assert "\N{RIGHTWARDS ARROW}" not in cost.value
    assert savings.value == "$0"


def test_a_smaller_recommended_batch_that_is_slower_is_not_called_noise() -> None:
    speedup = estimate_figures(make_result(current=128, recommended=64))[0]
    assert speedup.value == "no gain"
    assert "saves memory, not time" in speedup.note


def test_using_the_recommended_batch_already_is_no_gain() -> None:
    speedup = estimate_figures(make_result(current=128, recommended=128))[0]
    assert speedup.value == "no gain"
    assert "already the recommended one" in speedup.note


def test_a_gain_without_any_runs_is_still_a_gain() -> None:
    result = make_result()
    idle = replace(assumed(result), runs_per_year=0.0, gpu_hours_per_year=0.0, usd_per_year=0.0)
    assert has_gain(replace(result, savings=idle))


@pytest.mark.parametrize(("current", "gain"), [(16, True), (120, False)])
def test_the_stored_gain_does_not_depend_on_money(member: User, current: int, gain: bool) -> None:
    result = make_result(current=current, recommended=128)
    idle = replace(assumed(result), runs_per_year=0.0, gpu_hours_per_year=0.0, usd_per_year=0.0)
    request = make_request(current_batch_size=current, runs_per_year=0)
    sure = replace(result, savings=idle, speedup_low=1.2 if gain else 0.99, speedup_high=2.0)
    assert make_analysis(member, Status.SUCCEEDED, sure, request=request).has_gain is gain


def test_a_missing_step_time_is_stated_and_not_guessed() -> None:
    result = make_result(speedup=None, savings=None)
    assert estimate_figures(result)[0].value == "not known"


def test_savings_show_their_assumptions() -> None:
    _, cost, savings, energy = estimate_figures(make_result())
    assert "8 GPU-hours per run today" in cost.note
    assert "per GPU-hour" in cost.note
    assert "100 runs per year" in savings.note
    assert savings.label.startswith("Potential")
    assert "481 g CO2e per kWh" in energy.note
    assert "of 150 W per GPU" in energy.note


def test_energy_is_green_only_where_it_surely_falls() -> None:
    result = make_result()
    saved = assumed(result)
    assert saved.energy is not None
    for low, tone in ((1.0, "good"), (-1.0, "quiet")):
        energy = replace(saved.energy, kwh_per_year_low=low)
        figure = estimate_figures(replace(result, savings=replace(saved, energy=energy)))[-1]
        assert figure.tone == tone
    assert "(\N{MINUS SIGN}1.00 to " in figure.note


def test_energy_is_not_shown_where_the_power_is_not_known() -> None:
    result = make_result()
    unknown = replace(result, savings=replace(assumed(result), energy=None))
    labels = [figure.label for figure in estimate_figures(unknown)]
    assert labels == ["Speedup", "Cost per run", "Potential savings per year"]


def test_the_lengths_of_a_batch_are_shown_and_sent(client: Client, member: User) -> None:
    analysis = make_analysis(member, Status.SUCCEEDED, make_result(lengths=make_lengths()))
    client.force_login(member)
    html = " ".join(client.get(f"/{analysis.pk}/").content.decode().split())
    assert "Lengths in a batch of 128" in html
    for shown in ("512", "99%", "that none of 10,000 batches has a longer one", "402", "35%"):
        assert shown in html.split("Lengths in a batch of 128")[1].split("</section>")[0]
    body = client.get(f"/api/v1/analyses/{analysis.pk}/").json()
    assert (body["worst_tokens"], body["padding"]) == (512, 0.35)
    assert body["result"]["lengths"]["probability"] == 0.99


NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)


def test_the_global_batch_is_kept_by_accumulation() -> None:
    assert global_batch_advice(make_result()) == ""
    kept = global_batch_advice(make_result(global_batch=make_global_batch()))
    assert kept == "Use 4 micro-batches of 128 per optimizer step: 512 samples."
    whole = make_result(global_batch=make_global_batch(128, 1, 128))
    assert global_batch_advice(whole).startswith("Use one batch of 128 per")


def test_a_global_batch_that_cannot_be_kept_exactly_is_marked() -> None:
    workload = Workload(model="bert", parallelism=Parallelism.DDP, world_size=2)
    uneven = make_result(global_batch=make_global_batch(500, 2, 512), workload=workload)
    advice = global_batch_advice(uneven)
    assert "on each of 2 GPUs" in advice
    assert "512 samples, because no allowed batch divides 500 evenly" in advice


@pytest.mark.parametrize(
    ("status", "waited", "preposition", "ticks", "hinted"),
    [
        (Status.QUEUED, 3, "for", True, False),
        (Status.QUEUED, LONG_WAIT_SECONDS + 1, "for", True, True),
        (Status.RUNNING, 60, "for", True, False),
        (Status.SUCCEEDED, 60, "in", False, False),
        (Status.FAILED, 60, "after", False, False),
    ],
)
def test_the_state_shows_the_duration(
    status: Status, waited: float, preposition: str, ticks: bool, hinted: bool
) -> None:
    begun = NOW - timedelta(seconds=waited)
    analysis = Analysis(status=status, queued_at=begun)
    if status != Status.QUEUED:
        analysis.started_at = begun
    if analysis.is_final:
        analysis.finished_at = begun + timedelta(seconds=5)
    state = state_of(analysis, NOW)
    assert (state.preposition, state.ticks) == (preposition, ticks)
    assert state.elapsed_seconds == (5 if analysis.is_final else waited)
    assert bool(state.hint) == hinted


ASKED: dict[str, object] = {"model": "bert", "gpu": "a10", "current_batch_size": 16}
STORED = {
    "node": "gpu-1", "engine": "a" * 64, "python": "3.13.1",
    "torch": "2.13.0", "transformers": "5.23.0", "django-q2": "1.11.1",
}  # fmt: skip


def test_the_worker_that_claims_it_records_its_environment(member: User, fake_engine: Any) -> None:
    fake_engine("success")
    analysis = services.submit(member, ASKED)
    assert analysis.environment == {}
    worker.run(analysis.job.pk)
    analysis.refresh_from_db()
    assert analysis.environment == environment_here()
    assert {"node", "engine", "python", "torch", "transformers"} <= set(analysis.environment)


def test_the_next_worker_records_its_own_environment(member: User) -> None:
    analysis = services.submit(member, ASKED)
    claim = lease.claim(analysis.job.pk, "one", environment=STORED)
    assert claim is not None
    lease.finish(claim, lease.Interrupted())
    assert lease.claim(analysis.job.pk, "two", environment=STORED | {"node": "two"}) is not None
    analysis.refresh_from_db()
    assert analysis.environment["node"] == "two"


def test_a_reused_result_keeps_the_environment_it_was_computed_in(member: User) -> None:
    first = services.submit(member, ASKED)
    claim = lease.claim(first.job.pk, "gpu-1", environment=STORED)
    assert claim is not None
    lease.finish(claim, make_result())
    second = services.submit(member, ASKED)
    assert second.answered_from == first
    assert second.environment == STORED


def test_a_prediction_shows_node_libraries_and_engine(member: User) -> None:
    analysis = make_analysis(member, Status.SUCCEEDED, environment=STORED)
    assert environment_rows(analysis, verdict_of(analysis)) == [
        ("Node", "gpu-1"),
        ("Libraries", "transformers 5.23.0, torch 2.13.0"),
        ("Python", "3.13.1"),
        ("Engine", "a" * 12),
    ]


def test_a_result_of_other_versions_than_the_nodes_shows_its_own(member: User) -> None:
    result = make_result(software={"transformers": "4.51.3", "torch": "2.13.0"})
    analysis = make_analysis(member, Status.SUCCEEDED, result, environment=STORED)
    rows = dict(environment_rows(analysis, verdict_of(analysis)))
    assert rows["Libraries"] == "transformers 4.51.3, torch 2.13.0"


@pytest.mark.parametrize(
    ("wanted", "is_warned"), [("", False), ("torch=2.13.0", False), ("transformers=4.51.3", True)]
)
def test_the_page_names_the_versions_and_warns_of_others(
    client: Client, member: User, wanted: str, is_warned: bool
) -> None:
    used = {"transformers": "5.23.0", "torch": "2.13.0+cpu"}
    result = make_result(software=used, workload=Workload("bert", software=wanted))
    analysis = make_analysis(member, Status.SUCCEEDED, result)
    client.force_login(member)
    page = client.get(reverse("analyses:detail", args=[analysis.pk])).content.decode()
    assert "For transformers 5.23.0, torch 2.13.0." in page
    assert ("not transformers 4.51.3" in page) is is_warned


def test_a_measurement_shows_its_device_and_each_version_once(member: User) -> None:
    result = make_result(
        source=Source.MEASURED, measured_on=MeasuredOn("NVIDIA A10", "2.13.0", "5.23.0", 4)
    )
    analysis = make_analysis(member, Status.SUCCEEDED, result, environment=STORED)
    rows = environment_rows(analysis, verdict_of(analysis))
    assert rows[:2] == [("Node", "gpu-1"), ("Device", "NVIDIA A10")]
    assert [label for label, _ in rows].count("Libraries") == 1


@pytest.mark.parametrize(("node", "rows"), [("gpu-1", [("Node", "gpu-1")]), ("", [])])
def test_an_older_analysis_shows_what_it_has(
    client: Client, member: User, node: str, rows: list[tuple[str, str]]
) -> None:
    analysis = make_analysis(member, Status.SUCCEEDED, node=node)
    assert environment_rows(analysis, verdict_of(analysis)) == rows
    client.force_login(member)
    html = client.get(reverse("analyses:detail", args=[analysis.pk])).content.decode()
    assert (">Environment<" in html) == bool(rows)
