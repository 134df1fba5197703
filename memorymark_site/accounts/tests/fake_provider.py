"""A small OpenID Connect provider on this machine, for tests: right, or wrong as a test says."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

CLIENT, SECRET = "memorymark", "a secret of the client"


class FakeProvider:
    """Signs in whomever a test wants.

    Attributes:
        url: Its issuer.
        claims: What its ID tokens say, besides what each needs; ``None`` leaves a claim out.
        userinfo: What it tells besides, if anything.
        described: What its description says instead.
        answers: Status and body of the token endpoint, where it is to answer that.
        algorithm, signs_with: How its tokens are signed, instead of by its own key.
        asked: What the token endpoint was sent last.
    """

    def __init__(self) -> None:
        self.claims: dict[str, Any] = {}
        self.userinfo: dict[str, Any] = {}
        self.described: dict[str, Any] = {}
        self.answers: tuple[int, str] | None = None
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.signs_with: Any = self.key
        self.algorithm = "RS256"
        self.asked: dict[str, str] = {}
        self._sent: dict[str, str] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.url = f"http://127.0.0.1:{self._server.server_port}/realms/lab"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def end(self) -> None:
        """Go away."""
        self._server.shutdown()
        self._server.server_close()

    def sign_in(self, url: str) -> str:
        """What a browser is sent back to, that was sent to this address; path and query."""
        back = urlsplit(self.leads_back_to(url))
        return f"{back.path}?{back.query}"

    def leads_back_to(self, url: str) -> str:
        """The whole of that."""
        self._sent = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        assert self._sent["client_id"] == CLIENT
        query = urlencode({"code": "a-code", "state": self._sent["state"]})
        return f"{self._sent['redirect_uri']}?{query}"

    def sent(self, name: str) -> str | None:
        """What the browser was sent with."""
        return self._sent.get(name)

    def answer(self, path: str, body: str) -> tuple[int, str]:
        """Status and JSON of a page of it."""
        if path.endswith("/.well-known/openid-configuration"):
            return 200, json.dumps(self._description() | self.described)
        if path.endswith("/keys"):
            return 200, json.dumps({"keys": [self._public_key()]})
        if path.endswith("/userinfo"):
            return 200, json.dumps(self.userinfo)
        if path.endswith("/token"):
            self.asked = {name: values[0] for name, values in parse_qs(body).items()}
            return self.answers or (200, json.dumps(self._tokens()))
        return 404, "{}"

    def _description(self) -> dict[str, Any]:
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/keys",
            "userinfo_endpoint": f"{self.url}/userinfo",
        }

    def _public_key(self) -> dict[str, Any]:
        public = jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key(), as_dict=True)
        return public | {"kid": "1", "use": "sig", "alg": "RS256"}

    def _tokens(self) -> dict[str, Any]:
        challenge = hashlib.sha256(self.asked["code_verifier"].encode()).digest()
        assert self._sent["code_challenge"] == base64.urlsafe_b64encode(challenge).decode().rstrip(
            "="
        )
        now = int(time.time())
        said = {
            "iss": self.url,
            "aud": CLIENT,
            "sub": "0001",
            "iat": now,
            "exp": now + 300,
            "nonce": self._sent["nonce"],
        } | self.claims
        claims = {name: value for name, value in said.items() if value is not None}
        token = jwt.encode(claims, self.signs_with, self.algorithm, headers={"kid": "1"})
        return {"access_token": "an-access-token", "token_type": "Bearer", "id_token": token}


def _handler(provider: FakeProvider) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if urlsplit(self.path).path.endswith("/authorize"):  # nobody is asked
                self.send_response(302)
                self.send_header("Location", provider.leads_back_to(self.path))
                self.end_headers()
                return
            self._answer("")

        def do_POST(self) -> None:
            self._answer(self.rfile.read(int(self.headers["Content-Length"])).decode())

        def _answer(self, body: str) -> None:
            status, text = provider.answer(urlsplit(self.path).path, body)
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_arguments: Any) -> None:
            pass

    return Handler
