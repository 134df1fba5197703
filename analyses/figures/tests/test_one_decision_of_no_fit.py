"""An analysis that does not fit: every place says so, and shows the decision with which it fits."""

from __future__ import annotations

import csv
import io
from importlib import import_module

from django.apps import apps
from django.contrib.auth.models import User
from django.test import Client

from analyses import services
from analyses.figures.decision import decision_figures
from analyses.figures.tests.deciding import export_of, figures, finish, report_run
from analyses.jobs import lease, plans
from analyses.jobs.engine_output import Failure
from analyses.models import Analysis, CountedSavings, Decided, Node, QueryKind
from analyses.notifications.message import of_ended
from analyses.pages.analysis.sharing import create_link
from analyses.pages.compare.views import Progress
from analyses.tests.factories import lease_on, make_request, make_result
from analyses.tests.query_answers import answer_next, plan_that_fits
from engine.client.lab import Analysis as ClientAnalysis

NO_FIT = "BERT does not fit on NVIDIA A10: even batch 1 needs 48.9 of 22.1 GiB."
TO_FIT = "Switch to bf16: batch 64 fits."


def unfit(owner: User) -> Analysis:
    """An analysis that a worker has found not to fit, once its plan says with what it does."""
    submitted = services.submit(owner, make_request())
    lease.finish(lease_on(submitted), Failure("does_not_fit", NO_FIT))
    answer_next(QueryKind.PLAN, plan_that_fits())
    return Analysis.objects.get(pk=submitted.pk)


def test_what_does_not_fit_has_the_same_decision_everywhere(
    page: Client, member: User, node: Node
) -> None:
    analysis, other = unfit(member), finish(member, make_result(gpu="t4"), gpu="t4")
    pk = analysis.pk
    found = figures(analysis)
    assert (found.sentence, found.moves, found.batch_size) == (TO_FIT, ["bf16"], 64)
    assert (found.speedup, found.with_todays_settings.batch_size) == (None, None)

    detail = page.get(f"/{pk}/").content.decode()
    headline = detail.split('id="decision"')[1].split("</section>")[0]
    for said in (TO_FIT, 'href="#share"', "/adopt/"):
        assert said in headline
    assert "count as realised" not in headline
    for said in ("No, it does not fit", NO_FIT, "fp32 → bf16-mixed", f"analysis_id={pk}"):
        assert said in detail

    row = page.get("/history/").content.decode().split(f'id="analysis-{pk}"')[1].split("</tr>")[0]
    overview = page.get("/").content.decode()
    recent = overview.split(f'id="recent-{pk}"')[1].split("</section>")[0]
    compared = page.get("/compare/", {"ids": f"{pk},{other.pk}"}).content.decode()
    for text in (row, recent, compared):
        assert "Does not fit" in text
        assert "Failed" not in text
        assert "fp32 → bf16-mixed" in text
    for text in (row, recent):
        assert "with bf16" in text
    assert Progress.of([analysis]).unanswered == 0
    waiting = overview.split('id="decisions"')[1].split("</section>")[0]
    assert "Does not fit" in waiting
    assert "with bf16" in waiting
    inbox = page.get("/inbox/?show=all").content.decode()
    assert f"<p>{NO_FIT} It fits with bf16.</p>" in inbox
    assert '<span class="inbox-kind inbox-failed">Does not fit</span>' in inbox

    exported = csv.DictReader(io.StringIO(export_of(page, "/history/export.csv")))
    (line,) = (one for one in exported if one["id"] == str(pk))
    assert (line["status"], line["outcome"]) == ("failed", "does_not_fit")
    assert (line["recommended_batch_size"], line["moves"]) == ("64", "bf16")

    body = page.get(f"/api/v1/analyses/{pk}/").json()
    assert (body["status"], body["outcome"]) == ("failed", "does_not_fit")
    assert body["decision"]["sentence"] == TO_FIT
    assert body["failure"] == {"code": "does_not_fit", "reason": NO_FIT}
    assert (body["recommended_batch_size"], body["moves"]) == (64, ["bf16"])
    client = ClientAnalysis.of(body)
    assert (client.decision, client.failure) == (TO_FIT, NO_FIT)

    message = of_ended(analysis)
    assert message.payload["outcome"] == "does_not_fit"
    assert message.payload["decision"]["sentence"] == TO_FIT
    assert f"{NO_FIT} {TO_FIT}" in message.text
    assert "does not fit, answered after" in message.subject
    assert "failed" not in message.subject + message.text + message.payload["text"]

    _, token = create_link(analysis, member, days=7)
    shared = Client().get(f"/shared/{token}/").content.decode()
    assert TO_FIT in shared
    assert "fp32 → bf16-mixed" in shared


def test_what_does_not_fit_can_be_adopted_and_saves_nothing(
    page: Client, member: User, node: Node
) -> None:
    analysis = unfit(member)
    page.post(f"/{analysis.pk}/adopt/", {"rung": "bf16"})
    adopted = Analysis.objects.get(pk=analysis.pk)
    assert figures(adopted).is_adopted
    assert not CountedSavings.objects.exists()
    page.post(f"/{analysis.pk}/take-back/")
    undone = Analysis.objects.get(pk=analysis.pk)
    assert (undone.adopted_at, figures(undone).sentence) == (None, TO_FIT)


def test_a_run_of_what_does_not_fit_appears_beside_its_decision(
    page: Client, member: User, node: Node
) -> None:
    analysis = unfit(member)
    report_run(page, analysis, batch_size=64, precision="bf16-mixed")
    html = page.get(f"/{analysis.pk}/").content.decode()
    assert 'id="training-runs"' in html
    assert "as recommended</span>" in html


def test_what_does_not_fit_has_no_decision_where_nothing_makes_it_fit(
    page: Client, member: User, node: Node
) -> None:
    submitted = services.submit(member, make_request())
    lease.finish(lease_on(submitted), Failure("does_not_fit", NO_FIT))
    plan = plan_that_fits()
    answer_next(QueryKind.PLAN, plan | {"ladder": plan["ladder"][:1]})
    analysis = Analysis.objects.get(pk=submitted.pk)
    assert decision_figures(analysis) is None
    report_run(page, analysis, batch_size=8)
    html = page.get(f"/{analysis.pk}/").content.decode()
    assert "node-3, NVIDIA A10" in html.split('id="training-runs"')[1].split("</section>")[0]
    assert "Nothing that was tried makes it fit" in html
    assert 'href="#share"' not in html


def test_plans_of_what_does_not_fit_are_read_again_after_an_upgrade(
    member: User, node: Node
) -> None:
    analysis = unfit(member)
    Decided.objects.all().delete()  # as before
    Analysis.objects.filter(pk=analysis.pk).update(result=None, recommended_batch_size=None)
    migration = import_module("analyses.migrations.0058_decide_what_does_not_fit")
    migration.read_again(apps, None)
    assert plans.catch_up() == 1
    assert figures(Analysis.objects.get(pk=analysis.pk)).sentence == TO_FIT
