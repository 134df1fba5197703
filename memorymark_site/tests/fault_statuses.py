"""The error pages of :mod:`.faults` and their statuses, for programs without Django's settings."""

STATUSES = {
    "invalid": 400,
    "unknown-host": 400,
    "too-large": 413,
    "failure": 500,
    "away": 503,
    "busy": 503,
    "form-expired": 403,
}
"""By the end of the address."""
