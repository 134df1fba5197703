from __future__ import annotations

import socket

import pytest

from e2e.running import free_port
from memorymark_site.port import problem


def _listener() -> socket.socket:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    return listener


def test_a_free_port_is_no_problem() -> None:
    assert problem("127.0.0.1", str(free_port())) == ""


def test_a_used_port_is_reported_with_what_to_do() -> None:
    with _listener() as listener:
        port = listener.getsockname()[1]
        said = problem("127.0.0.1", str(port))

    assert f"port {port} is taken" in said
    assert "make run PORT=" in said


@pytest.mark.parametrize("port", ["", "0", "65536", "-1", "http", "8000 ", "٣"])
def test_an_invalid_port_is_reported(port: str) -> None:
    assert "is not a port" in problem("127.0.0.1", port)


def test_an_address_of_another_machine_is_reported() -> None:
    assert problem("192.0.2.1", "8000").startswith("cannot listen on 192.0.2.1")
