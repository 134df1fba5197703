"""The form and its preview under whatever a browser, or somebody else, may send: never a 500."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from analyses.pages.new.form import AnalysisForm
from analyses.pages.new.questions import Question
from analyses.pages.new.widgets import OTHER_MODEL

NASTY = st.one_of(
    st.sampled_from(
        [
            "\0", "bert\0", "\ud800", "9" * 400, "-" + "9" * 400, "1e999", "nan", "inf", "-0",
            "0x10", "٣", "1_000", "true", "[]", "{}", "null", "[" * 5_000, '{"a":' * 5_000,
            " ", "\u202e", "a" * 20_000, "local:", "local:\0", "any", "../../etc/passwd",
        ]
    ),
    st.text(max_size=30),
    st.integers().map(str),
    st.floats().map(str),
)  # fmt: skip
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8),
    st.sampled_from(["\0", "\ud800", 10**400, -1, 2**63, [], {}]),
)  # fmt: skip
JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
MODEL_TYPES = st.sampled_from(["bert", "gpt2", "resnet", "t5", "llama", "whisper", "nothing", ""])
FIELDS = st.sampled_from(
    [
        "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
        "vocab_size", "max_position_embeddings", "n_layer", "torch_dtype", "architectures",
        "num_labels", "image_size", "depths", "hidden_sizes", "quantization_config",
    ]
)  # fmt: skip
CONFIG = st.one_of(
    st.builds(
        lambda kind, given: json.dumps({"model_type": kind, **given}),
        MODEL_TYPES,
        st.dictionaries(FIELDS, JSON, max_size=6),
    ),
    JSON.map(json.dumps),
    NASTY,
)


@st.composite
def typed(draw: st.DrawFn) -> dict[str, Any]:
    """Values for a few fields of the form, some of them sent more than once."""
    with_lists = NASTY | st.lists(NASTY, max_size=3)
    names = st.sampled_from([*_NAMES, "csrfmiddlewaretoken", "no-such-field"])
    fields: dict[str, Any] = draw(st.dictionaries(names, with_lists, max_size=8))
    base = {"ask": draw(st.sampled_from([*Question, "nothing"])), "gpu": "a10"}
    base["model"] = draw(st.sampled_from(["bert", "resnet-50", OTHER_MODEL]))
    if base["model"] == OTHER_MODEL:
        base |= {"other_model": draw(NASTY), "config": draw(CONFIG)}
    return base | fields


_NAMES = (
    "model", "other_model", "config", "gpu", "ask", "precision", "optimizer", "sequence_length",
    "target_length", "image_size", "current_batch_size", "batch_to_check", "texts_at_once",
    "no_batch", "global_batch_size", "batch_multiple", "gradient_accumulation", "world_size",
    "lora_rank", "lora_targets", "sample_lengths", "software", "memory_limit_bytes", "allocator",
    "hours_per_run", "runs_per_year", "price_per_hour_usd", "task", "label_count", "compile",
    "compared_models", "compared_precisions", "compared_batches", "compared_gpus", "new_tokens",
    "compared_software",
)  # fmt: skip


def test_the_names_are_those_of_the_form(db: None) -> None:
    del db
    known = AnalysisForm().fields.keys()
    assert known - set(_NAMES) < known  # most are fuzzed
    assert len(known & set(_NAMES)) > 25


@pytest.mark.longer
@pytest.mark.parametrize("address", ["/new/", "/new/preview/"])
@given(sent=typed())
@example(sent={"model": OTHER_MODEL, "gpu": "a10", "config": '{"model_type": "bert\0"}'})
@example(sent={"model": OTHER_MODEL, "gpu": "a10", "config": '{"model_type": "bert\\u0000"}'})
@example(sent={"model": OTHER_MODEL, "gpu": "a10", "config": '{"model_type": "\\ud800"}'})
@example(sent={"model": "bert\0", "gpu": "a10", "ask": "compare", "compared_gpus": ["a10", "\0"]})
@settings(
    max_examples=settings().max_examples // 2,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_whatever_is_sent_there_is_an_answer(
    client: Client, member: User, address: str, sent: dict[str, Any]
) -> None:
    client.raise_request_exception = False
    client.force_login(member)
    body = urlencode(_encodable(sent), doseq=True)
    answer = client.post(address, body, content_type="application/x-www-form-urlencoded")
    assert answer.status_code in (200, 302, 400)


@pytest.mark.parametrize("address", ["/new/", "/new/preview/"])
@pytest.mark.parametrize("content", [b"", b"\0", b"\xff\xfe", b"[" * 200_000, b'{"a": 1e999}'])
def test_whatever_file_is_sent_there_is_an_answer(
    client: Client, member: User, address: str, content: bytes
) -> None:
    client.raise_request_exception = False
    client.force_login(member)
    file = SimpleUploadedFile("config.json", content)
    sent = {"model": OTHER_MODEL, "gpu": "a10", "config_file": file}
    assert client.post(address, sent).status_code == 200


def _encodable(sent: dict[str, Any]) -> dict[str, Any]:
    """Text as clients send it: halves of surrogate pairs become the bytes that stand for them."""
    return {
        name: [_bytes(one) for one in value] if isinstance(value, list) else _bytes(value)
        for name, value in sent.items()
    }


def _bytes(text: Any) -> bytes:
    return str(text).encode(errors="surrogatepass")
