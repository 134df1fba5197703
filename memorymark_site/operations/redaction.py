"""Removes secrets from log lines: those this process knows, and what looks like one.

It is the last step before a line is written, so it covers libraries and tracebacks too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from urllib.parse import unquote, urlsplit

HIDDEN = "[hidden]"
_MIN_LENGTH = 6
"""Shorter known secrets would remove harmless words too."""

_WITH_SECRETS = ("DATABASE_URL", "EMAIL_URL")
_NAMES_A_SECRET = re.compile(r"(SECRET|TOKEN|PASSWORD|PASSWD|CREDENTIALS?)(_|$)|_KEY$", re.I)
"""Names of variables whose values are secrets: SECRET_KEY, HF_TOKEN and the like."""

_LOOKS_SECRET = (
    (
        re.compile(
            r"(/(?:setup|shared|invitation|account/address|accounts/reset/[^/\s]+)/)[^/\s\"'?]+"
        ),
        rf"\g<1>{HIDDEN}",
    ),
    (re.compile(r"(/accounts/sso/callback/\?)[^\s\"']+"), rf"\g<1>{HIDDEN}"),
    (re.compile(r"(hooks\.slack\.com/services/|/api/webhooks/)[^\s\"']+"), rf"\g<1>{HIDDEN}"),
    (re.compile(r"\bmm_\w{8,}"), f"mm_{HIDDEN}"),
    (re.compile(r"\bwhsec_[\w+/=-]+"), f"whsec_{HIDDEN}"),
    (re.compile(r"([a-z][a-z0-9+.-]{0,20}://[^\s/:@]{0,200}:)[^\s/]+@", re.I), rf"\g<1>{HIDDEN}@"),
    (
        re.compile(r"(authorization\W{1,5}(?:bearer|token|basic) +)[^\s\"']+", re.I),
        rf"\g<1>{HIDDEN}",
    ),
    (
        re.compile(
            r"((?:password|passwd|secret|token|sessionid)\w{0,20}[\"']?\s{0,3}[=:]\s{0,3})"
            r"(?:\"[^\"]*\"|'[^']*'|(?<==)[^\s&;,'\"]+)",
            re.I,
        ),
        rf"\g<1>{HIDDEN}",
    ),
)


class Redactor:
    """Removes secrets from a text.

    Args:
        secrets: The known ones.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        known = sorted(
            {text for text in secrets if len(text) >= _MIN_LENGTH}, key=len, reverse=True
        )
        self._known = re.compile("|".join(map(re.escape, known))) if known else None

    def __call__(self, text: str) -> str:
        """The text, with ``[hidden]`` for each secret."""
        if self._known is not None:
            text = self._known.sub(HIDDEN, text)
        for pattern, instead in _LOOKS_SECRET:
            text = pattern.sub(instead, text)
        return text


def secrets_of(environment: Mapping[str, str]) -> frozenset[str]:
    """The secrets in an environment: keys, tokens, and passwords in addresses."""
    found = {
        value
        for name, value in environment.items()
        if name in _WITH_SECRETS or _NAMES_A_SECRET.search(name)
    }
    for value in environment.values():
        if "://" in value:
            found |= _password_in(value)
    return frozenset(found - {""})


def _password_in(url: str) -> set[str]:
    try:
        password = urlsplit(url).password or ""
    except ValueError:  # the environment's checks report it
        return set()
    return {password, unquote(password)}
