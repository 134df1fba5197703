from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from analyses.models import Analysis, Status
from analyses.pages.tests.reading import html_of
from analyses.tests.factories import (
    add_log,
    add_trial,
    make_analysis,
    make_global_batch,
    make_result,
    make_trial,
    make_user,
)
from analyses.tests.first_version import of_first_version
from analyses.tests.text_answers import make_text_analysis
from engine import __version__
from engine.core.errors import DoesNotFit
from engine.interface.result import GlobalBatch, LargeTensor, TimelinePoint
from engine.interface.trial import Source

HOSTILE = "<script>alert(1)</script>"


# Who may look


@pytest.mark.parametrize("name", ["list", "new", "detail", "live", "log"])
def test_every_page_requires_a_login(client: Client, member: User, name: str) -> None:
    args = [make_analysis(member).pk] if name in ("detail", "live", "log") else []
    response = client.get(reverse(f"analyses:{name}", args=args))
    assert response.status_code == 302
    assert response["Location"].startswith(reverse("account_login"))


def test_members_see_each_others_analyses(page: Client) -> None:
    other = make_analysis(make_user("alan"))
    assert "alan" in html_of(page, "list")
    assert "alan" in html_of(page, "detail", other.pk)


@pytest.mark.parametrize("name", ["detail", "live", "log"])
def test_a_missing_analysis_is_not_found(page: Client, name: str) -> None:
    response = page.get(reverse(f"analyses:{name}", args=[4711]))
    assert response.status_code == 404
    assert "There is no analysis 4711." in response.content.decode()


# A verdict


def test_a_verdict_has_all_its_parts(page: Client, member: User) -> None:
    result = make_result()
    analysis = make_analysis(member, Status.SUCCEEDED, result)
    add_log(analysis, "done")
    html = html_of(page, "detail", analysis.pk)
    assert html.index(result.decision) < html.index("Memory and speed by batch")
    for text in (
        "<li>128 tokens</li>",
        f"{result.next_batch_size} runs out of memory",
        "Free at batch 16",
        "Copy config",
        "per_device_train_batch_size=128",
        "Measure to confirm",
        "recommended 128",
        "data-slider",
        "Speedup",
        "Cost per run",
        "Potential savings per year",
        "GPU-hours",
        "Memory at the peak, by category",
        "Optimizer state",
        "Peak memory by phase",
        "At batch 128, the training step needs the most GPU memory.",
        "Host memory: 0.41 GiB while loading (computed).",
        "<li>Loading: All are read.</li>",
        "Caveats",
        "Settings",
        "done",
        result.caveats[0].replace("'", "&#x27;"),
        f"/new/?from={analysis.pk}",
        "badge-predicted",
        "badge-assumed",
        "Memory over one training step (batch 128)",
        'id="timeline-figure"',
        "Largest tensors at the peak",
        "bert.encoder.layer.0.output",
        "aten.addmm",
        "Small numbers are the range of a prediction",
        "plotly/plotly.min.js",
    ):
        assert text in html
    assert html.index("Switch to batch 128") < html.index('role="tablist"')
    assert html.count("memory-bar bar-current") == 1
    assert html.count("memory-bar bar-recommended") == 1
    assert "every 500ms" not in html
    assert "http-equiv" not in html


def test_a_result_of_the_first_version_has_none_of_the_newer_parts(
    page: Client, member: User
) -> None:
    result = make_result()
    analysis = make_analysis(member, Status.SUCCEEDED, result)
    stored = of_first_version(result)
    Analysis.objects.filter(pk=analysis.pk).update(result=stored)
    analysis.trials.update(
        device_used_low_bytes=None, device_used_high_bytes=None,
        step_seconds_low=None, step_seconds_high=None,
    )  # fmt: skip
    html = html_of(page, "detail", analysis.pk)
    assert result.verdict in html
    for text in (
        "Memory along one step", "Largest tensors", "Certificate", "Keeping the global batch",
        "high end", "Range (predicted)", "Small figures are", "None",
    ):  # fmt: skip
        assert text not in html


def test_a_prediction_has_its_range_beside_it(page: Client, member: User) -> None:
    trial = make_trial(16)
    analysis = make_analysis(member, Status.RUNNING)
    add_trial(analysis, trial)
    html = html_of(page, "detail", analysis.pk)
    low, high = trial.device_used_low_bytes, trial.device_used_high_bytes
    assert low is not None
    assert high is not None
    assert f"<small>{low / 2**30:.2f}\N{EN DASH}{high / 2**30:.2f}</small>" in html


def test_a_certificate_has_the_commands_that_reproduce_it(page: Client, member: User) -> None:
    commands = ["memorymark measure --batch-size 263", "memorymark measure '<264>'"]
    result = make_result(source=Source.MEASURED, certificate=commands)
    html = html_of(page, "detail", make_analysis(member, Status.SUCCEEDED, result).pk)
    assert commands[0] in html
    assert "&lt;264&gt;" in html


def test_the_advice_on_the_global_batch_is_shown(page: Client, member: User) -> None:
    result = make_result(global_batch=make_global_batch())
    html = html_of(page, "detail", make_analysis(member, Status.SUCCEEDED, result).pk)
    assert "Keeping the global batch of 512" in html
    assert "4 micro-batches of 128" in html
    assert "the learning rate is to be tuned" in html


def test_the_trials_of_a_verdict_are_in_order_of_size(page: Client, member: User) -> None:
    result = make_result()
    html = html_of(page, "detail", make_analysis(member, Status.SUCCEEDED, result).pk)
    sizes = [int(part.split("<")[0]) for part in html.split('<th scope="row" class="number">')[1:]]
    assert sizes == sorted(trial.batch_size for trial in result.trials)


@pytest.mark.parametrize("source", [Source.PREDICTED, Source.MEASURED])
def test_one_label_says_where_the_numbers_come_from_and_others_have_their_own(
    page: Client, member: User, source: Source
) -> None:
    analysis = make_analysis(member, Status.SUCCEEDED, make_result(source=source))
    html = html_of(page, "detail", analysis.pk)
    before, _, rest = html.partition('id="decision"')
    first, _, below = rest.partition("</section>")
    label = f'class="badge badge-{source}"'
    assert first.count(label) == 6  # of the sentence, the bars and the cards
    assert (before + below).count(label) == 0
    cards = below.split('class="card figure-card')[1:]
    assert len(cards) == 4
    assert all("badge-assumed" in card.split("</div>")[0] for card in cards[1:])


def test_an_answer_that_nothing_fits_gets_the_scripts_of_its_proof(
    page: Client, member: User
) -> None:
    analysis = make_analysis(member, Status.FAILED, failure_code=DoesNotFit.code)
    html = html_of(page, "detail", analysis.pk)
    for script in ("tabs.js", "by_batch.js", "chart.js"):
        assert script in html


@pytest.mark.parametrize("kind", ["batch", "texts", "does not fit", "failed"])
def test_every_answer_ends_with_the_way_to_the_next(page: Client, member: User, kind: str) -> None:
    analysis = {
        "batch": lambda: make_analysis(member, Status.SUCCEEDED),
        "texts": lambda: make_text_analysis(member),
        "does not fit": lambda: make_analysis(member, Status.FAILED, failure_code=DoesNotFit.code),
        "failed": lambda: make_analysis(member, Status.FAILED),
    }[kind]()
    html = html_of(page, "detail", analysis.pk)
    assert html.count(">Analyze another</a>") == (kind != "failed")


def test_on_a_measured_page_what_is_predicted_is_labelled(page: Client, member: User) -> None:
    result = make_result(source=Source.MEASURED)
    html = html_of(page, "detail", make_analysis(member, Status.SUCCEEDED, result).pk)
    cards = html.split('class="card figure-card')[1:]
    *measured, energy = [card.split("</div>")[0] for card in cards]
    assert not any("badge-predicted" in card for card in measured)
    assert "badge-predicted" in energy  # no power is ever measured


def test_a_current_batch_that_does_not_fit_is_marked(page: Client, member: User) -> None:
    result = make_result(current=384)
    html = html_of(page, "detail", make_analysis(member, Status.SUCCEEDED, result).pk)
    assert "no speed to compare with" in html
    assert "bar-limit" in html


@pytest.mark.parametrize("change", [{"invented": 1}, {"source": "guessed"}, {"workload": {}}])
def test_a_result_of_another_version_is_not_an_error(
    page: Client, member: User, change: dict[str, object]
) -> None:
    analysis = make_analysis(member, Status.SUCCEEDED)
    Analysis.objects.filter(pk=analysis.pk).update(result=make_result().to_dict() | change)
    html = html_of(page, "detail", analysis.pk)
    assert "stored by another version of MemoryMark" in html
    assert str(analysis.largest_batch_size) in html
    assert "every 500ms" not in html


# A failure


def test_a_failure_has_its_reason_its_log_and_a_next_step(page: Client, member: User) -> None:
    analysis = make_analysis(
        member, Status.FAILED, failure_code="deadline", failure_reason="It needs 30 GiB."
    )
    add_log(analysis, "the last words")
    html = html_of(page, "detail", analysis.pk)
    assert "It needs 30 GiB." in html
    assert "the last words" in html
    assert f'href="/new/?from={analysis.pk}">Edit and rerun' in html
    assert "plotly" not in html


def test_hostile_text_stays_plain_text(page: Client, member: User) -> None:
    failed = make_analysis(member, Status.FAILED, failure_reason=HOSTILE)
    add_log(failed, HOSTILE)
    result = make_result(
        verdict=HOSTILE,
        model_name=HOSTILE,
        caveats=[HOSTILE],
        certificate=[HOSTILE],
        largest_tensors=[LargeTensor(1, HOSTILE, HOSTILE, HOSTILE)],
        timeline=[TimelinePoint(0.0, HOSTILE, {HOSTILE: 1})],
        global_batch=GlobalBatch(1, 1, 1, HOSTILE),
    )
    succeeded = make_analysis(member, Status.SUCCEEDED, result)
    add_log(succeeded, HOSTILE)
    for analysis in (failed, succeeded):
        html = html_of(page, "detail", analysis.pk)
        assert HOSTILE not in html
        assert "&lt;script&gt;" in html
    response = page.get(reverse("analyses:log", args=[failed.pk]))
    assert response["Content-Type"].startswith("text/plain")


# Other pages


def test_an_unknown_address_has_a_page_in_our_style(page: Client) -> None:
    response = page.get("/no/such/page/")
    assert response.status_code == 404
    assert "Not found" in response.content.decode()


def test_the_theme_is_the_visitors_choice(page: Client) -> None:
    assert 'data-theme="dark"' in html_of(page, "list")
    page.cookies["theme"] = "light"
    assert 'data-theme="light"' in html_of(page, "list")
    page.cookies["theme"] = '"><b>'
    assert "><b>" not in html_of(page, "list")


def test_posting_to_a_read_only_page_is_refused(page: Client, member: User) -> None:
    analysis = make_analysis(member)
    for name, args in (("list", []), ("detail", [analysis.pk]), ("live", [analysis.pk])):
        assert page.post(reverse(f"analyses:{name}", args=args)).status_code == 405


@pytest.mark.parametrize("address", ["/", "/history/", "/{pk}/", "/savings/", "/gpus/"])
def test_the_foot_of_each_page_names_the_release(
    client: Client, member: User, address: str
) -> None:
    analysis = make_analysis(member, Status.SUCCEEDED, make_result())
    client.force_login(member)
    html = client.get(address.format(pk=analysis.pk)).content.decode()
    assert f"MemoryMark {__version__}:" in html
