"""A rung that a page shows beside the decision: all around it follows, and it is no decision."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client

from analyses import services
from analyses.figures.tests.deciding import figures, finish, report_run
from analyses.models import Analysis, Node, QueryKind
from analyses.pages.analysis.ladder import ladder_of
from analyses.tests.factories import make_result
from analyses.tests.query_answers import answer_next, plan_with_answers


def test_another_rung_is_said_to_be_none_and_all_around_it_follows(
    page: Client, member: User, node: Node
) -> None:
    analysis = decided_with_own(member)
    pk, found = analysis.pk, figures(analysis)
    address = f"/{pk}/"
    decision = page.get(address).content.decode()
    assert 'id="compared"' not in decision
    assert 'href="#share"' in decision

    as_it_is = page.get(address, {"rung": rung_of(member, analysis, "as it is")}).content.decode()
    said = as_it_is.split('id="compared"')[1].split("</p>")[0]
    assert "<strong>as it is</strong>" in said
    assert found.sentence in said
    assert f'href="{address}"' in said
    assert "<em>Adopt</em> makes this the decision." in said
    chips_shown = as_it_is.split('<div id="chips">')[1].split("</div>")[0]
    assert "bf16" not in chips_shown
    assert 'href="#share"' not in as_it_is
    assert "Create link" not in as_it_is
    assert f"A link shows the decision of this analysis: {found.sentence}" in as_it_is


@pytest.mark.longer
def test_runs_are_held_against_the_batch_that_is_shown(
    page: Client, member: User, node: Node
) -> None:
    analysis = decided_with_own(member)
    report_run(page, analysis, batch_size=128)
    html = page.get(f"/{analysis.pk}/").content.decode()
    assert "Not verified by the last run: it trained with batch 128, not 64." in html
    rung = rung_of(member, analysis, "as it is")
    as_it_is = page.get(f"/{analysis.pk}/", {"rung": rung}).content.decode()
    assert "Not verified" not in as_it_is
    assert "as shown here</span>" in as_it_is
    services.adopt(analysis, member)
    adopted = page.get(f"/{analysis.pk}/", {"rung": rung}).content.decode()
    assert "adopted and verified" not in adopted
    assert "Realised savings" not in adopted


def decided_with_own(owner: User) -> Analysis:
    """An analysis with a decision, whose ladder has its own answer too."""
    analysis, plan = finish(owner), plan_with_answers()
    own = plan["ladder"][0] | {"result": make_result().to_dict()}
    answer_next(QueryKind.PLAN, plan | {"ladder": [own, *plan["ladder"][1:]]})
    return Analysis.objects.get(pk=analysis.pk)


def rung_of(member: User, analysis: Analysis, name: str) -> str:
    """The number of a rung in addresses."""
    rows = ladder_of(member, analysis).rows
    return str(next(row.index for row in rows if row.name == name))
