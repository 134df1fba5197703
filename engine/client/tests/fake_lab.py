"""A fake lab that gives prepared responses and records its requests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


@dataclass(frozen=True)
class Received:
    """A request as it arrived."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any


@dataclass
class FakeLab:
    """Gives its responses in turn, then repeats the last: status, JSON (or bytes) and headers."""

    answers: list[tuple[int, Any, dict[str, str]]] = field(default_factory=list)
    requests: list[Received] = field(default_factory=list)

    def __enter__(self) -> FakeLab:
        lab = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                lab.requests.append(Received(self.command, self.path, dict(self.headers), body))
                status, given, headers = (
                    lab.answers.pop(0) if len(lab.answers) > 1 else lab.answers[0]
                )
                if status == 0:
                    return  # closes the connection without a response
                sent = given if isinstance(given, bytes) else json.dumps(given).encode()
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(sent)))
                self.end_headers()
                self.wfile.write(sent)

            do_POST = do_GET  # noqa: N815  # http.server's names
            do_PATCH = do_GET  # noqa: N815  # as above

            def log_message(self, format: str, *args: object) -> None:
                """Log nothing; the test reports failures."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def respond(self, *answers: Any) -> None:
        """Set the responses: a body alone means 200; else a status, a body and maybe headers."""
        self.answers = [
            (*answer, {})[:3] if isinstance(answer, tuple) else (200, answer, {})
            for answer in answers
        ]
