"""Analyses of members' own scripts: imported, then shown and counted like any other."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.test import Client
from rest_framework.test import APIClient

from analyses.importing.tests.pushed_scripts import EDITED, HASH, make_document, push_script
from analyses.models import Analysis, CountedSavings, Query, RunSavings, Status, TrainingRun
from analyses.services import run_again
from analyses.tests.factories import make_analysis, make_global_batch, make_training, make_user
from engine.core.errors import InvalidInput
from engine.interface.result import GpuOffer, KeptBatch
from engine.records.record import TrainingRecord

pytestmark = pytest.mark.database

URL = "/api/v1/analyses/import/"
NEVER = "the site never runs scripts of its members"


@pytest.fixture
def script(member: User) -> Analysis:
    return push_script(member)


@pytest.fixture
def reader(client: Client, member: User) -> Client:
    client.force_login(member)
    return client


def _page(client: Client, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200, (address, answer.status_code)
    return answer.content.decode()


# Imports


def test_a_script_is_imported_by_its_name_and_hash(api: APIClient, member: User) -> None:
    answer = api.post(URL, make_document(), format="json")

    assert answer.status_code == 201, answer.json()
    analysis = Analysis.objects.get()
    assert (analysis.owner, analysis.status) == (member, Status.SUCCEEDED)
    assert (analysis.model, analysis.program_hash) == ("train.py", HASH)
    assert (analysis.precision, analysis.optimizer, analysis.request_hash) == ("", "", "")
    assert analysis.trials.count() > 2
    body = answer.json()
    assert (body["model"], body["program_hash"]) == ("train.py", HASH)
    assert body["request"]["program"]["words"] == ["train.py"]
    assert body["assumed_by"]["hours_per_run"] == "lab"
    assert not Query.objects.exists()  # no plan, which would run it


def test_the_same_script_pushed_twice_is_stored_once(api: APIClient) -> None:
    document = make_document()

    assert api.post(URL, document, format="json").status_code == 201
    assert api.post(URL, document, format="json").status_code == 200
    assert Analysis.objects.count() == 1
    assert (
        api.post(URL, document | {"origin": {"host": "x", "ran": "y"}}, format="json").status_code
        == 409
    )


def test_an_edited_script_is_another_workload(member: User) -> None:
    one, again, edited = (
        push_script(member),
        push_script(member),
        push_script(member, "train.py", EDITED),
    )

    assert one.workload_key == again.workload_key != edited.workload_key
    assert push_script(member, "other.py").workload_key != one.workload_key
    assert CountedSavings.objects.count() == 3


WRONG: dict[str, tuple[str, object, str]] = {
    "a name that is a path": ("request.model", "../train.py", "request.model"),
    "a name with a tag": ("request.model", "<b>x", "request.model"),
    "a name that is too long": ("request.model", "x" * 101, "request.model"),
    "a formula for a name": ("request.model", "=1+1", "request.model"),
    "a model's name": ("request.model", "bert", "request.model"),
    "a name that is no text": ("request.model", 7, "request.model"),
    "no name": ("request.model", None, "request.model"),
    "a short hash": ("request.program.hash", "3f", "request.program.hash"),
    "a hash in capitals": ("request.program.hash", HASH.upper(), "request.program.hash"),
    "no hash": ("request.program.hash", None, "request.program.hash"),
    "no object": ("request.program", "train.py", "request.program"),
    "an unknown part": ("request.program.code", "import os", "request.program.code"),
    "too many words": ("request.program.words", ["x"] * 201, "request.program.words"),
    "a long word": ("request.program.words", ["x" * 1001], "request.program.words"),
    "a word that is no text": ("request.program.words", [1], "request.program.words"),
    "a line break": ("request.program.arguments", ["a\nb"], "request.program.arguments"),
    "a field that its code decides": ("request.precision", "fp32", "request.precision"),
    "no GPU": ("request.gpu", None, "request.gpu"),
    "any GPU": ("request.gpu", "any", "request.gpu"),
    "another GPU": ("request.gpu", "t4", "result.gpu"),
    "another hash in the result": ("result.program_hash", EDITED, "result.program_hash"),
    "a workload": ("result.workload", {"model": "bert"}, "result.workload"),
    "too large a number": ("result.speedup", 1e300, "result"),
    "a limit that no trial shows": ("result.largest_batch_size", 7, "result.largest_batch_size"),
    "a GPU that fits without a speed": (
        "result.compared_gpus",
        [asdict(GpuOffer("a10", 2**34, fits=True, recommended_batch_size=8))],
        "result.compared_gpus",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_script_is_refused_by_field(api: APIClient, what: str) -> None:
    path, value, field = WRONG[what]
    document = make_document()
    *inner, last = path.split(".")
    part = document
    for name in inner:
        part = part[name]
    part[last] = value
    answer = api.post(URL, document, format="json")

    assert answer.status_code == 400
    assert field in answer.json()["errors"], answer.json()
    assert not Analysis.objects.exists()


def test_a_model_without_its_workload_is_refused(api: APIClient) -> None:
    document = make_document()
    document["request"] = {"model": "bert", "gpu": "a10"}

    assert "result.workload" in api.post(URL, document, format="json").json()["errors"]


def test_a_script_is_never_submitted_to_be_run(api: APIClient) -> None:
    fields = make_document()["request"]

    answer = api.post("/api/v1/analyses/", fields, format="json")
    assert answer.status_code == 400
    assert "program" in answer.json()["errors"]
    assert not Analysis.objects.exists()


# Pages


def test_its_page_shows_the_answer_and_how_to_get_it_again(
    reader: Client, script: Analysis
) -> None:
    page = _page(reader, f"/{script.pk}/")

    assert "<h1>train.py</h1>" in page
    assert "script 3fa13fa1" in page
    for command in ("analyze", "plan"):
        words = f"memorymark {command} train.py --gpu a10 --current-batch-size 16"
        assert f"<code>{words} --push -- --lr 1e-4</code>" in page
    assert "memorymark measure train.py --batch-size 128 -- --lr 1e-4" in page
    assert NEVER in page
    assert "Reproduce the limit" in page
    assert f"analysis_id={script.pk}" in page
    assert f"program_hash=&quot;{HASH}&quot;" in page
    for gone in (f"/{script.pk}/again/", f"?from={script.pk}", "Find what helps"):
        assert gone not in page


RATE = (
    "Learning rate: start from 2.8\N{MULTIPLICATION SIGN} yours, by the square root rule for "
    "Adam-like optimizers (Malladi et al. 2022)."
)


def test_page_and_api_offer_what_keeps_its_global_batch_and_what_raises_it(
    reader: Client, api: APIClient
) -> None:
    document = make_document()
    document["result"]["kept_batch"] = asdict(KeptBatch(64, 2, 900.0, 1.3, 1.2, 1.4))
    pk = api.post(URL, document, format="json").json()["id"]
    offers = _page(reader, f"/{pk}/").split('class="offers"')[1].split("</div>")[0]
    kept, raised = offers.split("</section>")[:2]
    for said in (
        "Keeps the global batch of 128", "batch 64 in 2 micro-batches",
        "1.30\N{MULTIPLICATION SIGN}", "Learning rate: as it is.",
    ):  # fmt: skip
        assert said in kept
    for said in ("Raises the global batch from 128 to 1,024", "in 8 micro-batches", RATE):
        assert said in raised
    told = api.get(f"/api/v1/analyses/{pk}/").json()["decision"]["offers"]
    assert [offer["batch_size"] for offer in told] == [64, 128]
    assert told[1]["learning_rate"] == RATE


def test_where_nothing_keeps_its_global_batch_the_page_says_why(
    reader: Client, script: Analysis
) -> None:
    assert "No other split of its 8 micro-batches" in _page(reader, f"/{script.pk}/")


@pytest.mark.parametrize(
    "change",
    [{"batch_size": 48}, {"batch_size": 8, "micro_batches": 16}, {"speedup_low": 1.35}],
)
def test_a_wrong_split_of_the_global_batch_is_refused(
    api: APIClient, change: dict[str, Any]
) -> None:
    document = make_document()
    document["result"]["kept_batch"] = asdict(KeptBatch(64, 2, 900.0, 1.3, 1.2, 1.4)) | change
    errors = api.post(URL, document, format="json").json()["errors"]
    assert list(errors) == ["result.kept_batch"]


@pytest.mark.parametrize(
    "step",
    [
        {"optimizers": ["<b>"]},
        {"optimizers": ["A"] * 11},
        {"current_micro_batches": 0},
        {"gpus": 0},
        {"recommended_micro_batches": 2**60},
    ],
)
def test_a_wrong_optimizer_step_is_refused(api: APIClient, step: dict[str, Any]) -> None:
    document = make_document()
    document["result"]["optimizer_step"] |= step
    errors = api.post(URL, document, format="json").json()["errors"]
    assert list(errors) == ["result.optimizer_step"]


def test_a_global_batch_of_nothing_is_refused(api: APIClient) -> None:
    document = make_document()
    document["result"]["global_batch"] = asdict(make_global_batch(size=0))
    errors = api.post(URL, document, format="json").json()["errors"]
    assert list(errors) == ["result.global_batch"]


def test_what_the_site_cannot_do_for_it_is_said(reader: Client, script: Analysis) -> None:
    assert NEVER in _page(reader, f"/{script.pk}/advice/")
    assert reader.post(f"/{script.pk}/advice/").status_code == 302
    assert not Query.objects.exists()
    again = reader.post(f"/{script.pk}/run-again/", follow=True)
    assert f"cannot be run again: {NEVER}; run `memorymark analyze" in again.content.decode()
    form = _page(reader, f"/new/?from={script.pk}")
    assert f"not duplicated here: {NEVER}" in form
    assert Analysis.objects.count() == 1


def test_the_api_refuses_to_run_it_again(script: Analysis, member: User) -> None:
    with pytest.raises(InvalidInput, match="never runs scripts"):
        run_again(script, member)


def test_gpus_that_came_with_it_are_shown(reader: Client, api: APIClient) -> None:
    document = make_document()
    offers = [
        GpuOffer("a10", 2**34, True, True, "", 1.0, 280, 128, 350.0, 300.0, 400.0, 0.8),
        GpuOffer("l4", 2**34, True, True, "", 0.7, 280, 128, 300.0, 290.0, 310.0, 0.7),
        GpuOffer("t4", 2**34, False, why_not="batch 1 needs 20 GiB"),
    ]
    document["result"]["compared_gpus"] = [asdict(offer) for offer in offers]
    pk = api.post(URL, document, format="json").json()["id"]

    page = _page(reader, f"/{pk}/")
    assert "Cheapest per sample that surely fits" in page
    assert "memorymark plan train.py" in page  # which brings a ladder
    assert f"?from={pk}" not in page


def test_it_is_in_the_history_by_name_and_word(reader: Client, script: Analysis) -> None:
    make_analysis(script.owner, Status.SUCCEEDED)
    for query in ("model=train.py", "q=script", "q=train", "q=imported", "gpu=a10&model=train.py"):
        page = _page(reader, f"/history/?{query}")
        assert page.count('name="ids"') == 1, query
        assert "train.py" in page
    assert "script 3fa13fa1" not in _page(reader, "/history/?q=-script")
    for setting in ("precision", "optimizer", "task", "sequence_length"):
        assert "train.py" in _page(reader, f"/history/?columns={setting}")
    assert HASH in _page(reader, "/history/?columns=script")
    exported = reader.get("/history/export.csv?columns=script")
    text = "".join(part.decode() for part in exported.streaming_content)  # type: ignore[attr-defined]  # of a streaming response, which the client's type leaves out
    assert "train.py" in text
    assert HASH in text


def test_it_is_compared_with_a_model(reader: Client, api: APIClient, script: Analysis) -> None:
    other = make_analysis(script.owner, Status.SUCCEEDED)
    edited = push_script(script.owner, "train.py", EDITED)
    page = _page(reader, f"/compare/?ids={script.pk},{other.pk},{edited.pk}&all=1")

    assert "train.py" in page
    assert "BERT base" in page
    assert HASH[:16] in page
    body = api.get(f"/api/v1/compare/?ids={script.pk},{edited.pk}").json()
    assert [one["id"] for one in body["analyses"]] == [script.pk, edited.pk]
    (hashes,) = (row for row in body["asked"] if row["label"] == "Script")
    assert [cell["text"] for cell in hashes["cells"]] == [HASH[:16], EDITED[:16]]


def test_it_counts_in_savings_and_the_overview(reader: Client, script: Analysis) -> None:
    counted = CountedSavings.objects.get()
    assert (counted.analysis_id, counted.model) == (script.pk, "train.py")
    assert counted.usd_per_year > 0
    assert "train.py" in _page(reader, "/savings/?by=model")
    assert "train.py" in _page(reader, "/savings/?model=train.py")
    assert "train.py" in _page(reader, "/")


def test_it_is_shared_without_its_host(client: Client, script: Analysis) -> None:
    client.force_login(make_user("boss", is_staff=True))
    made = client.post(f"/{script.pk}/share/", {"days": "7"}).content.decode()
    address = made.split('id="share-address" value="')[1].split('"')[0]

    shown = _page(Client(), address)
    assert "train.py" in shown
    assert "laptop-7" not in shown
    assert f"program_hash=&quot;{HASH}&quot;" in shown
    assert "analysis_id" not in shown


def test_it_is_adopted_taken_back_and_deleted(reader: Client, script: Analysis) -> None:
    reader.post(f"/{script.pk}/adopt/")
    script.refresh_from_db()
    assert script.adopted_at is not None
    reader.post(f"/{script.pk}/take-back/")
    assert not Query.objects.exists()
    reader.post(f"/history/delete/?ids={script.pk}")
    assert not Analysis.objects.exists()


def test_its_request_of_another_version_is_no_error(reader: Client, script: Analysis) -> None:
    stored = script.request | {"colour": "red"}
    Analysis.objects.filter(pk=script.pk).update(request=stored)

    assert "train.py" in _page(reader, f"/{script.pk}/")
    _page(reader, f"/{script.pk}/advice/")
    assert NEVER in _page(reader, f"/new/?from={script.pk}")
    again = reader.post(f"/{script.pk}/run-again/", follow=True).content.decode()
    assert "cannot be run again" in again


# Verification


def _record(script: Analysis, **changes: Any) -> dict[str, Any]:
    """The report of a run as recommended."""
    record = TrainingRecord.parse(make_training(script).record)
    TrainingRun.objects.all().delete()
    record = replace(record, parameter_bytes=None, **changes)
    return {"id": record.id, "host": "node-1", "record": record.to_dict()}


def test_a_run_by_name_and_hash_verifies_it(
    reader: Client, api: APIClient, script: Analysis
) -> None:
    push_script(script.owner, "train.py", EDITED)
    reader.post(f"/{script.pk}/adopt/")
    report = _record(script, analysis_id=None, program="train.py", program_hash=HASH)

    answer = api.post("/api/v1/trainings/", report, format="json").json()
    assert (answer["analysis"], answer["verifies"]) == (script.pk, True)
    assert "Verified: measured" in _page(reader, f"/{script.pk}/")
    assert RunSavings.objects.get().model == "train.py"
    again = api.post("/api/v1/trainings/", report, format="json")
    assert again.status_code == 200
    assert TrainingRun.objects.count() == 1


def test_a_run_that_was_reported_before_the_script_was_pushed_finds_it(
    reader: Client, api: APIClient, script: Analysis
) -> None:
    named = {"analysis_id": None, "program": "train.py", "program_hash": EDITED}
    report = _record(script, **named)
    for changes in ({}, {"device_name": "Tesla T4"}, {"program": "other.py"}):
        sent = report | {"id": str(uuid4()), "record": report["record"] | changes}
        assert api.post("/api/v1/trainings/", sent, format="json").json()["analysis"] is None
    theirs = push_script(make_user("eve"), "train.py", EDITED)
    later = push_script(script.owner, "train.py", EDITED)

    (run,) = TrainingRun.objects.filter(analysis=later)
    assert (run.device_name, run.verifies) == ("NVIDIA A10", True)
    assert not TrainingRun.objects.filter(analysis=theirs).exists()
    assert "Verified: measured" in _page(reader, f"/{later.pk}/")


@pytest.mark.parametrize("path", ["/home/ada/thesis/train.py", "'/home/ada/my thesis/train.py'"])
def test_its_commands_have_no_folder_of_the_machine_that_it_ran_on(
    api: APIClient, reader: Client, path: str
) -> None:
    command = f"memorymark predict {path} --gpu a10 --batch-size 253 -- --lr 1e-4"
    document = make_document()
    document["result"] |= {"certificate": [command], "caveats": [f"A run would tell: {command}"]}
    number = api.post("/api/v1/analyses/import/", document, format="json").json()["id"]

    page = _page(reader, f"/{number}/")
    assert "/home/ada" not in page
    assert page.count("memorymark predict train.py --gpu a10 --batch-size 253 -- --lr 1e-4") == 2


def test_a_run_by_the_number_of_the_analysis_verifies_it(api: APIClient, script: Analysis) -> None:
    report = _record(script, analysis_id=script.pk)

    assert api.post("/api/v1/trainings/", report, format="json").json()["verifies"]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"program": "train.py", "program_hash": EDITED}, "it trained another version of train.py"),
        ({"program": "other.py"}, "it trained other.py, not train.py"),
        ({"device_name": "Tesla T4"}, "it trained on Tesla T4, not NVIDIA A10"),
    ],
)
def test_a_run_of_something_else_is_not_counted(
    reader: Client, api: APIClient, script: Analysis, changes: dict[str, Any], why: str
) -> None:
    answer = api.post(
        "/api/v1/trainings/", _record(script, analysis_id=script.pk, **changes), format="json"
    ).json()

    assert not answer["verifies"]
    assert why in _page(reader, f"/{script.pk}/")


def test_a_run_of_a_script_is_never_another_members(api: APIClient) -> None:
    theirs = push_script(make_user("eve"))
    report = _record(theirs, analysis_id=None, program="train.py", program_hash=HASH)

    assert api.post("/api/v1/trainings/", report, format="json").json()["analysis"] is None


def test_runs_of_scripts_of_one_name_are_held_apart(
    reader: Client, api: APIClient, script: Analysis
) -> None:
    """Past errors of a name are those of its hash: `train.py` is everybody's name."""
    other = push_script(script.owner, "train.py", EDITED)
    report = _record(other, analysis_id=other.pk)
    api.post("/api/v1/trainings/", report, format="json")

    assert "your lab" in _page(reader, f"/{other.pk}/")
    assert "your lab</th>" not in _page(reader, f"/{script.pk}/")
