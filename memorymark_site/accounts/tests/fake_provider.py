"""A small local OpenID Connect provider for tests, which can misbehave on request."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

CLIENT, SECRET = "memorymark", "a secret of the client"


@cache
def _own_key() -> rsa.RSAPrivateKey:
    """The key of every provider here: making one takes a tenth of a second."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


class FakeProvider:
    """Signs in anyone a test wants.

    Attributes:
        url: Its issuer URL.
        claims: Claims of its ID tokens in addition to the required ones; ``None`` leaves one out.
        userinfo: Response of its userinfo endpoint, if any.
        described: Changes to its discovery document.
        answers: Status and body that the token endpoint returns instead, if set.
        algorithm, signs_with: Signs tokens with these instead of its own key.
        asked: The last request to the token endpoint.
    """

    def __init__(self) -> None:
        self.claims: dict[str, Any] = {}
        self.userinfo: dict[str, Any] = {}
        self.described: dict[str, Any] = {}
        self.answers: tuple[int, str] | None = None
        self.key = _own_key()
        self.signs_with: Any = self.key
        self.algorithm = "RS256"
        self.asked: dict[str, str] = {}
        self._sent: dict[str, str] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.url = f"http://127.0.0.1:{self._server.server_port}/realms/lab"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def end(self) -> None:
        """Shut down."""
        self._server.shutdown()
        self._server.server_close()

    def sign_in(self, url: str) -> str:
        """Where a browser sent to this address is redirected back to: path and query."""
        back = urlsplit(self.leads_back_to(url))
        return f"{back.path}?{back.query}"

    def leads_back_to(self, url: str) -> str:
        """The full address that it redirects back to."""
        self._sent = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        assert self._sent["client_id"] == CLIENT
        query = urlencode({"code": "a-code", "state": self._sent["state"]})
        return f"{self._sent['redirect_uri']}?{query}"

    def sent(self, name: str) -> str | None:
        """The query the browser arrived with."""
        return self._sent.get(name)

    def answer(self, path: str, body: str) -> tuple[int, str]:
        """Status and JSON of one of its pages."""
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
            if urlsplit(self.path).path.endswith("/authorize"):  # sign in without asking
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
