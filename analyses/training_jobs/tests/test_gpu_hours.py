from __future__ import annotations

import csv
from datetime import UTC, datetime, timedelta
from html import unescape
from urllib.parse import parse_qs, urlsplit

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from analyses.models import TrainingJob
from analyses.pages.gpu_hours import question
from analyses.tests.factories import make_user, make_viewer
from analyses.training_jobs.gpu_hours import MAX_LISTED_JOBS, Hours, Selection, rows_by, sum_of
from analyses.training_jobs.services import import_jobs
from analyses.training_jobs.tests.reported_jobs import (
    TOTAL_BYTES,
    USED_BYTES,
    job_body,
    make_training_job,
)
from engine.core.sizes import GIB

pytestmark = pytest.mark.database

URL = "/gpu-hours/"


def _text(page: Client, address: str = URL) -> str:
    response = page.get(address)
    assert response.status_code == 200
    return unescape(response.content.decode())


def _rows(page: Client, address: str) -> list[dict[str, str]]:
    lines = b"".join(page.get(address)).decode().splitlines()
    return list(csv.DictReader(lines))


def test_the_page_says_how_much_memory_was_used_for_how_long(page: Client, member: User) -> None:
    make_training_job(member)
    assert "26.0 of 80.0 GiB for 4.00 GPU-hours" in _text(page)


def test_the_mean_weighs_each_job_by_its_gpu_hours(page: Client, member: User) -> None:
    make_training_job(member, id="1", gpus=3, used_bytes=20 * GIB)
    make_training_job(member, id="2", gpus=1, used_bytes=60 * GIB)
    assert "30.0 of 80.0 GiB for 8.00 GPU-hours" in _text(page)


def test_hours_without_known_memory_are_counted_apart(page: Client, member: User) -> None:
    make_training_job(member, id="1")
    make_training_job(member, id="2", used_bytes=None, gpus=3)
    text = _text(page)
    assert "for 4.00 GPU-hours" in text
    assert "Mean over 4.00 of 10.0 GPU-hours, in 2 jobs" in text


def test_before_the_first_import_the_page_says_where_jobs_come_from(page: Client) -> None:
    text = _text(page)
    assert "No jobs yet" in text
    assert "memorymark import slurm" in text


def test_a_period_without_jobs_says_so(page: Client, member: User) -> None:
    make_training_job(member)
    assert "No jobs ended in this period" in _text(page, f"{URL}?from=2020-01-01&to=2020-01-02")


@pytest.mark.parametrize(
    ("asked", "first"),
    [
        ("", f"{datetime.now(UTC):%Y}-01-01"),
        ("?from=2020-01-01", "2020-01-01"),
        ("?period=all", ""),
    ],
)
def test_the_form_starts_with_the_period_that_is_shown(
    page: Client, member: User, asked: str, first: str
) -> None:
    make_training_job(member)
    assert f'name="from" value="{first}"' in _text(page, URL + asked)


def test_a_job_counts_in_the_period_in_which_it_ended(member: User) -> None:
    ended = datetime(2026, 3, 1, 0, 30, tzinfo=UTC)
    begun = ended - timedelta(hours=2)
    make_training_job(member, started_at=begun.isoformat(), ended_at=ended.isoformat())
    jobs = TrainingJob.objects.all()
    assert Selection(from_="2026-03-01", to="2026-03-31").of(jobs).count() == 1
    assert Selection(from_="2026-02-01", to="2026-02-28").of(jobs).count() == 0


def test_hours_add_up_by_gpu_member_and_model(member: User) -> None:
    admin = make_user("root", is_staff=True)
    make_training_job(member, id="1")
    make_training_job(member, id="2", device_name="a100_3g.20gb", request={})
    import_jobs(admin, {"jobs": [job_body(id="3", user="gr0042", gpus=6)]})
    keys = {
        by: [row.key for row in rows_by(TrainingJob.objects.all(), by)]
        for by in ("gpu", "member", "model")
    }
    assert keys == {
        "gpu": ["a100-80gb", "a100_3g.20gb"],
        "member": ["gr0042", "grace"],
        "model": ["bert", ""],
    }


@pytest.mark.parametrize("by", ["gpu", "member", "model"])
def test_each_breakdown_adds_up_to_the_same_sum(member: User, by: str) -> None:
    for number in range(5):
        request = {"model": "bert"} if number % 2 else {}
        make_training_job(member, id=f"{number}", gpus=number + 1, request=request)
    whole = sum_of(rows_by(TrainingJob.objects.all(), by))
    assert whole.jobs == 5
    assert whole.gpu_hours == pytest.approx(30)
    assert whole.used_bytes == pytest.approx(USED_BYTES)
    assert whole.total_bytes == pytest.approx(TOTAL_BYTES)


def test_no_hours_have_no_mean() -> None:
    assert Hours().used_bytes is None
    assert Hours().total_bytes is None


def test_the_jobs_with_the_most_unused_memory_are_listed_first(page: Client, member: User) -> None:
    for number in range(MAX_LISTED_JOBS + 2):
        make_training_job(member, id=f"job-{number:02}", gpus=number + 1)
    listed = [row["id"] for row in _rows(page, f"{URL}largest.csv")]
    assert listed == [f"job-{number:02}" for number in range(MAX_LISTED_JOBS + 1, 1, -1)]


def test_one_click_asks_with_what_the_config_tells(page: Client, member: User) -> None:
    job = make_training_job(member)
    address = question(job)
    assert address in _text(page)
    form = page.get(address).context["form"]
    assert {
        name: form[name].value()
        for name in ("model", "gpu", "current_batch_size", "precision", "sequence_length")
    } == {
        "model": "bert",
        "gpu": "a100-80gb",
        "current_batch_size": "16",
        "precision": "bf16-mixed",
        "sequence_length": "512",
    }


def test_a_model_of_the_hub_is_filled_in_by_its_id(page: Client, member: User) -> None:
    job = make_training_job(member, request={"model": "org/some-model"})
    form = page.get(question(job)).context["form"]
    assert form["other_model"].value() == "org/some-model"


def test_what_is_not_known_is_left_for_the_member(member: User) -> None:
    job = make_training_job(member, request={}, device_name="?")
    given = parse_qs(urlsplit(question(job)).query, keep_blank_values=True)
    assert given["other_model"] == [""]
    assert given["no_batch"] == ["on"]
    assert "gpu" not in given


def test_a_viewer_sees_the_hours_and_nothing_to_submit(client: Client, member: User) -> None:
    make_training_job(member)
    client.force_login(make_viewer())
    text = _text(client)
    assert "26.0 of 80.0 GiB" in text
    assert "Analyze" not in text


def test_nothing_is_claimed_as_saved(page: Client, member: User) -> None:
    make_training_job(member)
    main = _text(page).partition("<main")[2].partition("</main>")[0]
    assert "Unused memory is headroom, not savings" in main
    assert "USD" not in main
    assert "$" not in main


@pytest.mark.parametrize("by", ["gpu", "member", "model"])
def test_the_csv_has_the_rows_of_the_page(page: Client, member: User, by: str) -> None:
    make_training_job(member)
    (row,) = _rows(page, f"{URL}totals.csv?by={by}")
    assert f'<th scope="row">{row[by]}</th>' in _text(page, f"{URL}?by={by}")
    assert float(row["gpu_hours"]) == pytest.approx(4)
    assert float(row["mean_used_bytes"]) == pytest.approx(USED_BYTES)


def test_the_csv_of_jobs_guards_names_that_look_like_formulas(page: Client, member: User) -> None:
    make_training_job(member, name="=1+1")
    (row,) = _rows(page, f"{URL}largest.csv")
    assert row["name"] == "'=1+1"


@pytest.mark.parametrize(
    "query", ["by=month", "period=decade", "from=x", "from=2999-01-01", "to=1999-01-01"]
)
@pytest.mark.parametrize("address", ["", "totals.csv", "largest.csv"])
def test_a_wrong_address_is_404_with_the_reason(page: Client, query: str, address: str) -> None:
    assert page.get(f"{URL}{address}?{query}").status_code == 404


def test_a_name_from_outside_is_escaped(page: Client, member: User) -> None:
    make_training_job(member, name="<b>x</b>", device_name="<i>gpu</i>", request={})
    assert "<b>x</b>" not in page.get(URL).content.decode()
    assert "<i>gpu</i>" not in page.get(URL).content.decode()


def test_a_running_job_is_marked(page: Client, member: User) -> None:
    make_training_job(member, is_running=True)
    assert f"running {timezone.now():%Y-%m-%d}" in _text(page)
