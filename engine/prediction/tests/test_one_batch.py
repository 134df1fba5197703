"""The prediction of one batch, which says what an analysis says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.analysis import analyze
from engine.interface.request import AnalysisRequest
from engine.prediction.one_batch import predict_batch
from engine.tests.shared import slow
from engine.traces.workloads import KeptTraces

SMALL = {"num_hidden_layers": 1, "hidden_size": 64, "intermediate_size": 128, "vocab_size": 256}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2}
LLAMA = {"model_type": "llama", **SMALL, **HEADS}
MIXTRAL = {"model_type": "mixtral", "num_local_experts": 4, **SMALL, **HEADS}
BERT = {"model_type": "bert", **SMALL, "num_attention_heads": 4}
LORA = {"lora_rank": 4, "precision": "bf16-true", "sequence_length": 16}
OTHER_RELEASE = {"software": "transformers=4.46.0"}
OF_THE_SEARCH = (
    " fits even at the high end",
    "No batch is certain to fit",
    "were not tried",
    "would tell:",
)
"""Parts of sentences that only a search tells."""


@pytest.mark.longer
@pytest.mark.parametrize(
    "fields",
    [
        {"config": LLAMA, "optimizer": "paged-adamw-8bit", "sequence_length": 16},
        {"config": LLAMA, "world_size": 4, "parallelism": "fsdp", "sequence_length": 16},
        slow({"config": LLAMA, **LORA, "quantization": "int8", **OTHER_RELEASE}),
        slow({"config": MIXTRAL, **LORA, "quantization": "nf4", **OTHER_RELEASE}),
        slow({"config": LLAMA, "method": "dpo", "sequence_length": 16}),
        slow({"config": BERT, "eval_batch_size": 4, "sequence_length": 16}),
        slow({"model": "resnet-18"}),
    ],
    ids=["paged", "fsdp", "int8", "experts", "dpo", "evaluation", "convolutions"],
)
def test_it_has_the_caveats_of_an_analysis(fields: dict[str, Any]) -> None:
    asked = AnalysisRequest.parse({"gpu": "a10", "current_batch_size": None, **fields})
    traced = KeptTraces()
    result = analyze(asked, lambda _: None, traced=traced)
    recommended = replace(asked, current_batch_size=result.recommended_batch_size)
    predicted = predict_batch(recommended, lambda _: None, traced)
    of_both = [one for one in result.caveats if not any(part in one for part in OF_THE_SEARCH)]
    assert predicted.caveats == of_both


@pytest.mark.longer
def test_quantized_experts_differ_several_times_between_releases() -> None:
    fields = {"gpu": "a10", "current_batch_size": 1, **LORA, "quantization": "nf4"}
    mixture = AnalysisRequest.parse({"config": MIXTRAL, **fields, **OTHER_RELEASE})
    first = predict_batch(mixture, lambda _: None).caveats[0]
    assert "may differ several times" in first
    assert "2% to 11%" not in first
