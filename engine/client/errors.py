"""Errors of a lab: one exception for each thing a caller can do about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..core.errors import EngineError, InvalidInput


class LabError(EngineError):
    """The lab did not do it. The message is the lab's own, or says what to do."""

    code = "lab"


class Misconfigured(LabError, InvalidInput):
    """Address or token cannot be right: nothing was sent, or no MemoryMark answered.

    Attributes:
        fields: One message for each wrong setting, by its name.
    """

    code = "misconfigured"


class Unavailable(LabError):
    """The lab did not answer, or cannot now; the same request may work later."""

    code = "unavailable"


class NotFinished(LabError):
    """The answer takes longer than the caller wanted to wait; the lab goes on with it."""

    code = "not_finished"


class Refused(LabError):
    """The lab refused the request.

    Attributes:
        status: The HTTP status.
        fields: Messages for each wrong field.
    """

    code = "refused"

    def __init__(self, status: int, message: str, fields: Mapping[str, Sequence[str]]) -> None:
        super().__init__(message)
        self.status = status
        self.fields = {name: list(messages) for name, messages in fields.items()}


class NotAllowed(Refused):
    """The token is invalid or expired, or may not do this."""

    code = "not_allowed"


class NotFound(Refused):
    """It does not exist, or the member may not see it."""

    code = "not_found"


class Changed(Refused):
    """Someone has changed it since it was read; nothing was done."""

    code = "changed"


_ADVICE = {
    401: "Create a new token on the API tokens page, and set MEMORYMARK_TOKEN to it.",
    404: "The lab may run another version than this client.",
}


def refusal(status: int, body: Any) -> Refused:
    """The exception for a status of 400 to 499, with the lab's message if there is one."""
    text, fields = _message_of(body)
    message = " ".join(part for part in (text, _listed(fields), _ADVICE.get(status)) if part)
    kind = {401: NotAllowed, 403: NotAllowed, 404: NotFound, 412: Changed}.get(status, Refused)
    return kind(status, message or f"The lab answered {status} without a message.", fields)


def _message_of(body: Any) -> tuple[str, dict[str, list[str]]]:
    """The message and fields of an answer: a problem of RFC 9457, or the fields alone."""
    if not isinstance(body, Mapping):
        return "", {}
    text = str(body.get("detail") or body.get("title") or "")
    is_problem = text or "errors" in body
    given = body.get("errors") if is_problem else body
    if not isinstance(given, Mapping):
        return text, {}
    fields = {
        str(name): [str(one) for one in (messages if isinstance(messages, list) else [messages])]
        for name, messages in given.items()
    }
    return text, fields


def _listed(fields: Mapping[str, Sequence[str]]) -> str:
    return "; ".join(f"{name}: {' '.join(messages)}" for name, messages in fields.items())
