"""The lab's answer to an import of training jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .errors import LabError


@dataclass(frozen=True)
class ImportedJobs:
    """Imported training jobs by outcome.

    Attributes:
        new: Number of jobs that the lab did not have.
        updated: Number of those that it had otherwise.
        unchanged: Number of others that it had.
        refused: Id and reason of each job that it did not take.
    """

    new: int = 0
    updated: int = 0
    unchanged: int = 0
    refused: tuple[tuple[str, str], ...] = ()

    def __add__(self, other: ImportedJobs) -> ImportedJobs:
        return ImportedJobs(
            self.new + other.new,
            self.updated + other.updated,
            self.unchanged + other.unchanged,
            self.refused + other.refused,
        )

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> ImportedJobs:
        """Read the answer of the API.

        Raises:
            LabError: If it is none.
        """
        try:
            refused = tuple(
                (
                    job["id"] or f"job {job['number'] + 1}",
                    _in_one_line(job["errors"]),
                )
                for job in facts["refused"]
            )
            return cls(facts["new"], facts["updated"], facts["unchanged"], refused)
        except (KeyError, TypeError, AttributeError) as error:
            raise LabError(f"The lab's answer is not of an import: {error!r}") from error


def _in_one_line(errors: Mapping[str, Sequence[str]]) -> str:
    return "; ".join(f"{name}: {' '.join(texts)}" for name, texts in errors.items())
