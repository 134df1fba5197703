"""A software passkey: sends what a browser would, for tests without one."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from fido2.cose import ES256
from fido2.utils import websafe_decode, websafe_encode
from fido2.webauthn import (
    AttestationObject,
    AttestedCredentialData,
    AuthenticatorData,
    CollectedClientData,
)

ORIGIN, HOST = "http://localhost", "localhost"


class Passkey:
    """A passkey, unlocked by its owner or not."""

    def __init__(self, *, is_unlocked: bool = True, origin: str = ORIGIN) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._id = sha256(str(id(self)).encode()).digest()
        self._flags = AuthenticatorData.FLAG.UP
        self._origin = origin
        self._user = b""
        if is_unlocked:
            self._flags |= AuthenticatorData.FLAG.UV

    def create(self, options: dict[str, Any]) -> str:
        """Its response to a registration request."""
        asked = options["publicKey"]
        self._user = websafe_decode(asked["user"]["id"])
        public = ES256.from_cryptography_key(self._key.public_key())  # type: ignore[no-untyped-call]  # fido2's
        credential = AttestedCredentialData.create(b"\0" * 16, self._id, public)
        data = AuthenticatorData.create(
            _hash_of_host(), self._flags | AuthenticatorData.FLAG.AT, 0, credential
        )
        return self._answer(
            {
                "clientDataJSON": self._client_data("webauthn.create", asked["challenge"]),
                "attestationObject": websafe_encode(AttestationObject.create("none", data, {})),
            }
        )

    def get(self, options: dict[str, Any]) -> str:
        """Its response to a sign-in request."""
        asked = options["publicKey"]
        client_data = self._client_data("webauthn.get", asked["challenge"])
        data = AuthenticatorData.create(_hash_of_host(), self._flags, 1)
        signed = bytes(data) + sha256(websafe_decode(client_data)).digest()
        signature = self._key.sign(signed, ec.ECDSA(hashes.SHA256()))
        return self._answer(
            {
                "clientDataJSON": client_data,
                "authenticatorData": websafe_encode(data),
                "signature": websafe_encode(signature),
                "userHandle": websafe_encode(self._user),
            }
        )

    def _client_data(self, kind: str, challenge: str) -> str:
        data = CollectedClientData.create(kind, websafe_decode(challenge), self._origin)
        return websafe_encode(data)

    def _answer(self, response: dict[str, str]) -> str:
        number = websafe_encode(self._id)
        return json.dumps(
            {
                "id": number,
                "rawId": number,
                "type": "public-key",
                "response": response,
                "clientExtensionResults": {"credProps": {"rk": True}},
            }
        )


def _hash_of_host() -> bytes:
    return sha256(HOST.encode()).digest()
