"""What can go wrong in the engine, told apart so that every front can say it in its own way."""

import sys
import traceback
from collections.abc import Mapping


class EngineError(Exception):
    """A failure the engine can put in words for a person.

    Attributes:
        code: A stable word for programs (``failed``, ``invalid_input``, …).
    """

    code = "failed"


class InvalidInput(EngineError):
    """The question itself is wrong; nothing was run.

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


def tell_unexpected(error: BaseException) -> None:
    """Write an error that nobody foresaw to standard error, what it says in short as the last line.

    That line is what the process that started this one tells people, and CUDA's errors end with
    advice for those who write kernels.
    """
    traceback.print_exception(error)
    first = str(error).strip().partition("\n")[0]
    sys.stderr.write(f"{type(error).__name__}: {first}\n")
