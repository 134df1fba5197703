"""What can go wrong with a lab, told apart by what to do about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.errors import EngineError, InvalidInput


class LabError(EngineError):
    """The lab did not do what was asked; the message has its words, or says what to do."""

    code = "lab"


class Misconfigured(LabError, InvalidInput):
    """The address or the token cannot be right; nothing was sent, or no lab has answered.

    Attributes:
        fields: One message for each wrong setting, by the setting's name.
    """

    code = "misconfigured"


class Unavailable(LabError):
    """The lab did not answer, or cannot now: the same again later may work."""

    code = "unavailable"


class NotFinished(LabError):
    """An answer takes longer than one wanted to wait; it goes on without us."""

    code = "not_finished"


class Refused(LabError):
    """The lab has understood and says no.

    Attributes:
        status: Of HTTP.
        fields: Messages for each wrong field, if the request was wrong.
    """

    code = "refused"

    def __init__(self, status: int, message: str, fields: Mapping[str, Sequence[str]]) -> None:
        super().__init__(message)
        self.status = status
        self.fields = {name: list(messages) for name, messages in fields.items()}


class NotAllowed(Refused):
    """The token is not good (any more), or may not do this."""

    code = "not_allowed"


class NotFound(Refused):
    """There is no such thing, or one may not see it."""

    code = "not_found"


class Changed(Refused):
    """Somebody has changed it since it was read; nothing was done."""

    code = "changed"


_WHAT_TO_DO = {
    401: "Make a new token on the page API tokens, and set MEMORYMARK_TOKEN to it.",
    404: "This lab may be of another version than its client.",
}


def refusal(status: int, body: Any) -> Refused:
    """The exception for an answer of 400 to 499, in the lab's words where there are some."""
    words, fields = _words_of(body)
    message = " ".join(word for word in (words, _listed(fields), _WHAT_TO_DO.get(status)) if word)
    kind = {401: NotAllowed, 403: NotAllowed, 404: NotFound, 412: Changed}.get(status, Refused)
    return kind(status, message or f"The lab answered {status} and no word.", fields)


def _words_of(body: Any) -> tuple[str, dict[str, list[str]]]:
    """What an answer says: a problem of RFC 9457, or the fields alone."""
    if not isinstance(body, Mapping):
        return "", {}
    words = str(body.get("detail") or body.get("title") or "")
    is_problem = words or "errors" in body
    given = body.get("errors") if is_problem else body
    if not isinstance(given, Mapping):
        return words, {}
    fields = {
        str(name): [str(text) for text in (said if isinstance(said, list) else [said])]
        for name, said in given.items()
    }
    return words, fields


def _listed(fields: Mapping[str, Sequence[str]]) -> str:
    return "; ".join(f"{name}: {' '.join(said)}" for name, said in fields.items())
