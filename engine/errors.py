"""The engine's errors, by kind, so that each front end can report them in its own way."""

import sys
import traceback
from collections.abc import Mapping


class EngineError(Exception):
    """A failure with a message for a person.

    Attributes:
        code: A stable word for programs (``failed``, ``invalid_input``, …).
    """

    code = "failed"


class InvalidInput(EngineError):
    """The request is wrong; nothing was run.

    Attributes:
        fields: One message per wrong field, keyed by the field's name.
    """

    code = "invalid_input"

    def __init__(self, fields: Mapping[str, str]) -> None:
        self.fields = dict(fields)
        super().__init__("; ".join(f"{name}: {message}" for name, message in self.fields.items()))


class DoesNotFit(EngineError):
    """The workload needs more memory than the GPU has, even at the smallest batch size."""

    code = "does_not_fit"


class MeasurementFailed(EngineError):
    """A measured trial ended for a reason other than memory."""

    code = "measurement_failed"


def report_unexpected(error: BaseException) -> None:
    """Write an unexpected error to standard error, with a short summary as the last line.

    The parent process shows that line to users; CUDA's errors end with advice for kernel
    developers instead.
    """
    traceback.print_exception(error)
    first = str(error).strip().partition("\n")[0]
    sys.stderr.write(f"{type(error).__name__}: {first}\n")
