"""Other estimators: what they can be asked, and how their answers are summed up."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from benchmarks import estimators, published, xmem
from benchmarks.estimators import TOOLS, Question, answers
from benchmarks.estimators_asked import ASK

MIB = 2**20
TEXT = Question(
    name="a run",
    model={"workload": {"model": "bert"}},
    batch_size=8,
    optimizer="adamw",
    precision="fp32",
    sequence_length=128,
    image_size=None,
    checkpointing=False,
    total_bytes=1000 * MIB,
    measured_bytes=500 * MIB,
    left_out_bytes=0,
    ran=True,
    ours_bytes=510 * MIB,
)


def test_every_tool_can_be_asked_about_plain_training_of_text() -> None:
    assert [tool.package for tool in TOOLS] == list(ASK)
    assert all(tool.takes(TEXT) for tool in TOOLS)


@pytest.mark.parametrize(
    ("fields", "able"),
    [
        ({"optimizer": "adafactor"}, []),
        ({"optimizer": "none"}, ["torch-kitsune"]),
        ({"checkpointing": True}, ["gpu-estimator"]),
        ({"image_size": 224, "sequence_length": None}, ["torch-kitsune", "accelerate"]),
        ({"precision": "fp16-mixed"}, ["gpu-estimator", "accelerate"]),
    ],
)
def test_a_tool_is_not_asked_what_it_cannot_be_told(
    fields: dict[str, object], able: list[str]
) -> None:
    question = replace(TEXT, **fields)  # type: ignore[arg-type]  # fields vary
    assert [tool.package for tool in TOOLS if tool.takes(question)] == able


def test_answers_are_summed_up_beside_ours() -> None:
    out = replace(TEXT, ran=False)
    less = replace(TEXT, left_out_bytes=100 * MIB)
    said = [(TEXT, 1100 * MIB), (less, 700 * MIB), (out, 900 * MIB), (out, 1100 * MIB)]
    found = answers(TOOLS[0], said)
    assert (found.errors.median, found.errors.worst) == pytest.approx((0.7, 1.2))
    assert found.ours.median == pytest.approx(0.02)
    assert (found.false_safe, found.ran_out, found.false_alarm, found.ran) == (1, 2, 1, 2)
    assert estimators.cells(asdict(found))[1:] == [
        *("4", "70.0%", "120.0%", "2.0%", "1 of 2", "1 of 2")
    ]


def test_published_runs_become_questions_without_their_context() -> None:
    measurements = published.read_measurements(published.PUBLISHED.read_text(encoding="utf-8"))
    compared = [published.Comparison(one, predicted=2.0) for one in measurements]
    asked = [question for question in map(published.question, compared) if question]
    names = {question.name for question in asked}
    assert "BERT base b16, forward only" not in names
    assert "ResNet-50 b8 to b64" not in names
    assert not {"Mistral 7B QLoRA b4", "Mistral 7B FSDP b2"} & names
    (large,) = (question for question in asked if question.name == "BERT large b4")
    assert large.measured_bytes == 14949 * MIB - 1_408_237_568
    (vit,) = (question for question in asked if question.name == "ViT-L/16 b16, bf16-true")
    assert (vit.precision, vit.image_size, vit.optimizer) == ("bf16-true", 224, "adam")


def test_a_run_without_a_prediction_is_no_question() -> None:
    run, *_ = xmem.read_runs(xmem.RUNS.read_text(encoding="utf-8"))
    assert xmem.question(xmem.Comparison(run, failure="refused")) is None
    prediction = xmem.Prediction(True, 300 * MIB, 200 * MIB, 400 * MIB, 100 * MIB)
    question = xmem.question(xmem.Comparison(run, prediction))
    assert question is not None
    assert (question.left_out_bytes, question.ours_bytes) == (100 * MIB, 200 * MIB)
