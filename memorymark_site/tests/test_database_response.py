from __future__ import annotations

import socket
from collections.abc import Iterator
from time import monotonic
from typing import Any

import pytest
from django.db import OperationalError, connection, connections
from django.test import Client

from analyses.api import nodes
from memorymark_site import probes
from memorymark_site.operations.database import PATIENCE_SECONDS, need_response


@pytest.fixture
def frozen_server() -> Iterator[Any]:
    """A connection to a server whose kernel takes connections and which never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        found: Any = connections.create_connection("default")
        found.settings_dict = found.settings_dict | {"OPTIONS": {}}
        postgres = pytest.importorskip("django.db.backends.postgresql.base").DatabaseWrapper
        address = {"HOST": "127.0.0.1", "PORT": str(server.getsockname()[1]), "USER": "a"}
        yield postgres(found.settings_dict | address | {"NAME": "lab", "PASSWORD": ""})


def test_a_frozen_server_is_given_up_after_seconds(frozen_server: Any) -> None:
    begun = monotonic()
    with pytest.raises(OperationalError):
        need_response(frozen_server)
    assert monotonic() - begun < PATIENCE_SECONDS + 2


@pytest.mark.parametrize(
    ("address", "module"), [("/health", nodes), ("/api/v1/health", nodes), ("/ready", probes)]
)
def test_what_watches_the_site_hears_of_it(
    client: Client, monkeypatch: pytest.MonkeyPatch, frozen_server: Any, address: str, module: Any
) -> None:
    monkeypatch.setattr(module, "connection", frozen_server)
    response = client.get(address)
    assert response.status_code == 503
    assert response.json()["problems"][0] == "the database does not respond"


@pytest.mark.database
def test_a_database_that_responds_is_asked_for_nothing(db: None) -> None:
    need_response(connection)
