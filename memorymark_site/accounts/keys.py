"""Keys in links: random, known to whom they are given, and stored as a digest alone."""

from __future__ import annotations

import hashlib
import secrets

_BYTES = 32


def new_key() -> tuple[str, str]:
    """A new key and what to store of it."""
    key = secrets.token_urlsafe(_BYTES)
    return key, digest_of(key)


def digest_of(key: str) -> str:
    """What is stored of a key, whatever somebody has typed for one."""
    return hashlib.sha256(key.encode(errors="replace")).hexdigest()
