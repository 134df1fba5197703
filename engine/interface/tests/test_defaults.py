"""The defaults that an answer names."""

from __future__ import annotations

from engine.interface.defaults import defaults_taken
from engine.interface.request import AnalysisRequest


def test_numbers_are_written_as_everywhere_else() -> None:
    given = {"model": "llama-3.2-1b", "gpu": "a10"}
    (taken,) = defaults_taken(given, AnalysisRequest.parse(given))
    assert taken == "Assumed, since it was not given: fp32, adamw, 2,048 tokens."


def test_what_is_given_is_no_default() -> None:
    given = {"model": "bert", "gpu": "a10", "precision": "bf16-mixed", "sequence_length": 128}
    (taken,) = defaults_taken(given, AnalysisRequest.parse(given))
    assert taken == "Assumed, since it was not given: adamw."
    assert defaults_taken(given | {"optimizer": "sgd"}, AnalysisRequest.parse(given)) == []
