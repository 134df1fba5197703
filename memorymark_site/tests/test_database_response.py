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
from memorymark_site.operations.database import TIMEOUT_SECONDS, need_response


def connection_to(port: int) -> Any:
    found: Any = connections.create_connection("default")
    postgres = pytest.importorskip("django.db.backends.postgresql.base").DatabaseWrapper
    address = {"HOST": "127.0.0.1", "PORT": str(port), "USER": "a", "OPTIONS": {}}
    return postgres(found.settings_dict | address | {"NAME": "lab", "PASSWORD": ""})


@pytest.fixture
def frozen_server() -> Iterator[Any]:
    """A connection to a server whose kernel takes connections and which never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield connection_to(server.getsockname()[1])


@pytest.fixture
def no_server() -> Any:
    """A connection that is refused at once, so that nothing waits for its timeout."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    return connection_to(port)


@pytest.mark.longer
def test_a_frozen_server_is_given_up_after_seconds(frozen_server: Any) -> None:
    begun = monotonic()
    with pytest.raises(OperationalError):
        need_response(frozen_server)
    assert monotonic() - begun < TIMEOUT_SECONDS + 2


@pytest.mark.parametrize(
    ("address", "module"), [("/health", nodes), ("/api/v1/health", nodes), ("/ready", probes)]
)
def test_what_watches_the_site_hears_of_it(
    client: Client, monkeypatch: pytest.MonkeyPatch, no_server: Any, address: str, module: Any
) -> None:
    monkeypatch.setattr(module, "connection", no_server)
    response = client.get(address)
    assert response.status_code == 503
    assert response.json()["problems"][0] == "the database does not respond"


@pytest.mark.database
def test_a_database_that_responds_is_asked_for_nothing(db: None) -> None:
    need_response(connection)
