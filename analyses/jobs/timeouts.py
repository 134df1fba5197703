"""Timeouts for noticing dead processes, all in proportion to the heartbeat.

The order matters: a worker that cannot renew its lease must end its engine before the analysis
counts as lost; its place is free before that.
"""

from datetime import timedelta

from django.conf import settings

HEARTBEAT_SECONDS: float = settings.HEARTBEAT_SECONDS

SILENT_AFTER = timedelta(seconds=3.5 * HEARTBEAT_SECONDS)
"""Without a heartbeat for this long a worker is most likely gone, and no longer counts as busy."""

LEASE_SECONDS = 6.5 * HEARTBEAT_SECONDS
"""Without a write that the database took for this long, a worker ends its engine."""

STALE_AFTER = timedelta(seconds=10 * HEARTBEAT_SECONDS)
"""Without a heartbeat for this long a worker counts as gone, and a node as offline."""

HEARTBEAT_TASK_EVERY_SECONDS = HEARTBEAT_SECONDS / 2
HEARTBEAT_SILENCE_SECONDS = 4 * HEARTBEAT_SECONDS
"""If no task has got through for this long, though a worker is free, the workers hang."""

STARTING_SECONDS = 20.0
"""Time that the first task may take longer: a pool loads Django and starts its engines before."""
