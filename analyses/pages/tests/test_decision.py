"""The top of an answer says what to do, what it saves and how sure that is."""

from __future__ import annotations

import re
from dataclasses import replace

from analyses.pages.analysis.decision import decision_of
from analyses.tests.factories import make_request, make_result
from analyses.tests.query_answers import make_moved_result
from engine.answer.amounts import trial_at
from engine.answer.figures import SPEED
from engine.interface.result import AnalysisResult, Comparison, GlobalBatch
from engine.interface.trial import Source

REQUEST = make_request()


def test_a_gain_has_its_interval() -> None:
    decision = decision_of(make_result(), REQUEST)
    assert decision.sentence == "Switch to batch 128: it is faster."
    assert decision.changes
    assert decision.sureness.startswith("Memory ")
    assert "the gain is sure" in decision.sureness
    assert len(decision.measurements) == 2


def test_a_kept_batch_has_no_gain() -> None:
    kept = make_result(current=128, recommended=128, speedup_low=1.0, speedup_high=1.0)
    decision = decision_of(kept, REQUEST)
    assert decision.tone == "keep"
    assert "gain" not in decision.sureness
    assert len(decision.measurements) == 1


def test_a_probable_gain_is_called_that() -> None:
    decision = decision_of(make_result(speedup_low=0.95, speedup_high=1.6), REQUEST)
    assert "the gain is probable" in decision.sureness


def test_a_measured_answer_says_so() -> None:
    measured: AnalysisResult = make_result(
        source=Source.MEASURED, comparison=Comparison([1.0] * 6, [1.4] * 6, 0.97)
    )
    decision = decision_of(measured, REQUEST)
    assert decision.sureness.startswith("In 6 interleaved rounds")
    assert decision.measurements == []


def test_the_facts_name_each_batch_once() -> None:
    result = make_result()
    facts = {fact.name: fact for fact in decision_of(result, REQUEST).facts}
    fastest, largest = "Fastest that surely fits", "Largest that may fit"
    assert list(facts) == ["Recommended", fastest, largest, "Free at batch 16"]
    assert "GiB" in facts["Free at batch 16"].value
    size = result.largest_batch_size
    same = replace(result, fastest_batch_size=size, safe_batch_size=size)
    names = [fact.name for fact in decision_of(same, REQUEST).facts]
    assert names[1] == "Fastest that surely fits, largest that surely fits"


def test_each_fact_has_its_speed() -> None:
    result = make_result()
    notes = [fact.note for fact in decision_of(result, REQUEST).facts][:3]
    speeds = [SPEED.with_unit(trial_speed(result, size)) for size in (128, 230, 246)]
    assert notes == [
        f"surely fits, {speeds[0]} (predicted)",
        f"{speeds[1]} (predicted)",
        f"{result.next_batch_size} runs out of memory, {speeds[2]} (predicted)",
    ]
    unsure = replace(result, safe_batch_size=0)
    assert decision_of(unsure, REQUEST).facts[0].note.startswith("may run out of memory, ")


def trial_speed(result: AnalysisResult, size: int) -> float:
    trial = trial_at(result, size)
    assert trial
    assert trial.samples_per_second
    return trial.samples_per_second


def test_commands_of_a_decision_have_its_moves_and_those_of_today_have_none() -> None:
    decision = decision_of(make_moved_result(), REQUEST)
    today, then = decision.measurements
    assert "--batch-size 16" in today
    assert "bf16-mixed" not in today
    assert "--precision bf16-mixed" in then
    assert "--precision bf16-mixed" in decision.configs[-1].text


def test_what_keeps_the_global_batch_is_in_all_lines_to_paste() -> None:
    result = make_moved_result()
    kept = GlobalBatch(result.recommended_batch_size * 4, 4, result.recommended_batch_size * 4, "")
    decision = decision_of(replace(result, global_batch=kept), REQUEST)
    trainer, lightning, plain, command = (config.text for config in decision.configs)
    assert "gradient_accumulation_steps=4" in trainer
    assert "accumulate_grad_batches=4" in lightning
    assert "/ 4" in plain
    assert "--gradient-accumulation 4" in command
    assert f"--current-batch-size {result.recommended_batch_size} " in command
    assert f"--global-batch-size {kept.size}" in command
    today, then = decision.measurements
    assert "--gradient-accumulation" not in today
    assert "--gradient-accumulation 4" in then


def test_a_batch_that_does_not_fit_leaves_nothing_free() -> None:
    decision = decision_of(make_result(current=384), REQUEST)
    assert decision.facts[-1].note == "it does not fit"


def test_whether_it_fits_is_said_in_the_first_word() -> None:
    for current, first in (
        (16, "Yes, batch 16 surely fits: "),
        (384, "No, batch 384 does not fit"),
    ):
        assert decision_of(make_result(current=current), REQUEST).fit.startswith(first)
    narrow = make_result(current=244)
    said = decision_of(narrow, REQUEST).fit
    assert re.fullmatch(r"Maybe: batch 244 needs [\d.]+ GiB, at most [\d.]+ of 22.07 GiB\.", said)
    needed, most = map(float, re.findall(r"[\d.]+(?= GiB,| of)", said))
    assert needed < 22.07 < most
    assert decision_of(make_result(current=None), REQUEST).fit == ""


def test_another_global_batch_has_its_learning_rate_beside_it() -> None:
    said = decision_of(make_result(), REQUEST).training
    assert said.startswith("Raises the global batch from 16 to 128. Learning rate: start from 2.8")
    assert decision_of(make_result(current=128), REQUEST).training == ""
    assert decision_of(make_result(current=None), REQUEST).training == ""


def test_without_a_current_batch_nothing_is_compared() -> None:
    decision = decision_of(make_result(current=None), make_request(current_batch_size=None))
    assert decision.sentence.startswith("Start with batch 128: ")
    assert decision.tone == "change"
    assert [command.split()[-1] for command in decision.measurements] == ["128"]
    assert decision.facts[-1].name == "Free at batch 128"
    assert "today" not in decision.facts[-1].note
    command = decision.configs[-1].text
    assert "--current-batch-size 128" in command


def test_without_a_batch_that_surely_fits_it_is_a_problem() -> None:
    decision = decision_of(make_result(safe_batch_size=0), REQUEST)
    assert decision.tone == "problem"


def test_the_lines_to_paste_have_the_batch() -> None:
    names = [config.name for config in decision_of(make_result(), REQUEST).configs]
    assert names == ["Trainer", "Lightning", "PyTorch", "Command"]
    assert all("128" in config.text for config in decision_of(make_result(), REQUEST).configs)
