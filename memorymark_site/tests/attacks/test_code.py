"""Making the site or a node run the attacker's code."""

from __future__ import annotations

import json
import os
import pickle
from typing import Any

import pytest
from django.conf import settings
from django.core.signing import BadSignature
from django.test import Client
from django_q.conf import Conf
from django_q.models import OrmQ, Schedule
from django_q.signing import SignedPackage

from analyses.models import Analysis
from analyses.tests.factories import make_user
from engine.models.config import parse_config
from engine.models.presets import PRESETS
from memorymark_site.accounts.models import ApiToken

BERT: dict[str, Any] = PRESETS["bert"].config()
QUESTION: dict[str, Any] = {"model": "mine", "gpu": "a10", "config": BERT}


@pytest.fixture
def admin(client: Client, db: None) -> Client:
    client.force_login(make_user("ada", is_staff=True, is_superuser=True))
    return client


@pytest.fixture
def script(db: None) -> Client:
    token = ApiToken.objects.create(user=make_user("mallory"))[1]
    return Client(headers={"Authorization": f"Token {token}"})


def test_a_schedule_created_in_the_admin_site(admin: Client) -> None:
    """django-q2's own pages accept the name of any function, which a worker then calls."""
    fields = {
        "name": "x", "func": "os.system", "args": "'id'", "schedule_type": "O", "repeats": "-1",
        "next_run_0": "2026-01-01", "next_run_1": "00:00:00",
    }  # fmt: skip
    assert admin.post("/admin/django_q/schedule/add/", fields).status_code == 404
    assert not Schedule.objects.exists()
    for table in ("schedule", "success", "failure", "ormq"):
        assert admin.get(f"/admin/django_q/{table}/").status_code == 404
    assert settings.Q_CLUSTER["scheduler"] is False, "nor is one run that stands in the table"


class _Bomb:
    """Runs code when unpickled."""

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, ("touch /tmp/never",)


def test_an_entry_of_the_queue_signed_with_another_key(
    db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By someone who can write to the database but does not have SECRET_KEY."""
    with monkeypatch.context() as attacker:
        attacker.setattr(Conf, "SECRET_KEY", "another")
        forged = SignedPackage.dumps({"id": "1", "func": "os.system", "args": ("id",)})
    for payload in (forged, forged[:-1] + "A", pickle.dumps(_Bomb()).hex(), ""):
        OrmQ.objects.create(key="predictions", payload=payload)
        with pytest.raises((BadSignature, ValueError)):
            SignedPackage.loads(payload)


def test_a_session_is_not_a_pickle() -> None:
    """Otherwise anyone who can write to the session table could make a visit run code."""
    assert settings.SESSION_SERIALIZER == "django.contrib.sessions.serializers.JSONSerializer"


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "mine", "auto_map": {"AutoModel": "evil/code--modeling.Evil"}},
        BERT | {"model_type": "../../evil"},
        BERT | {"model_type": "__import__('os')"},
        BERT | {"model_type": "auto"},
        {"architectures": ["os.system"]},
        BERT | {"quantization_config": {"quant_method": "evil"}},
    ],
)
def test_a_config_that_names_code(script: Client, config: dict[str, Any]) -> None:
    body = json.dumps(QUESTION | {"config": config})
    answer = script.post("/api/v1/analyses/", body, content_type="application/json")
    assert answer.status_code == 400
    assert not Analysis.objects.exists()


@pytest.mark.parametrize(
    "field", ["attn_implementation", "experts_implementation", "dtype", "auto_map"]
)
def test_a_field_of_a_config_that_may_name_code_is_dropped(field: str) -> None:
    """transformers would fetch a kernel or a model of that name from the hub and run it."""
    kept = parse_config(BERT | {field: "evil/kernels:attention"})
    assert field not in kept


@pytest.mark.parametrize(
    "fields",
    [
        {"factory": "os:system"},
        {"model": "engine.examples.my_training:make_step"},
        {"trust_remote_code": True},
        {"allocator": "backend:cudaMallocAsync,x:/tmp/evil.so"},
        {"attention": "evil/kernels"},
    ],
)
def test_a_request_that_names_code(script: Client, fields: dict[str, Any]) -> None:
    """Your own training code is only for the command line."""
    body = json.dumps({"model": "bert", "gpu": "a10"} | fields)
    answer = script.post("/api/v1/analyses/", body, content_type="application/json")
    assert answer.status_code == 400
    assert not Analysis.objects.exists()
