"""A lab made by the code of release 1.0.0 itself, with that release's own commands."""

from __future__ import annotations

import io
import json
import os
import subprocess
import tarfile
from pathlib import Path
from typing import Any

from drills.lab import run_python
from drills.node import ROOT

COMMIT = "5f460187c3d8bf8733ee9b11f12633c7c58cdf31"
"""The commit that described release 1.0.0 for the first time."""

_FILL = """
import json
from analyses import services
from analyses.models import Analysis, Status
from analyses.pages import sharing
from analyses.tests.factories import add_log, make_analysis, make_user
from memorymark_site.accounts.models import ApiToken

ada, grace = make_user("ada"), make_user("grace", is_staff=True)
done = make_analysis(ada, Status.SUCCEEDED)
add_log(done, "a line")
services.adopt(done, grace)
make_analysis(grace, Status.FAILED, failure_code="oom", failure_reason="too large")
services.submit(ada, {"model": "bert", "gpu": "a10", "current_batch_size": 3})
_, token = ApiToken.objects.create(user=ada, name="script")
_, shared = sharing.create_link(done, ada, 7)
print(json.dumps({"token": token, "shared": shared, "done": done.pk}))
"""


class NoHistory(Exception):
    """The release's code is not here; the message says why."""


class FirstRelease:
    """Release 1.0.0 in a folder.

    Args:
        folder: A new folder for its code.
        data_dir: The data folder of its lab.
        database_url: The lab's database; empty for SQLite in the data folder.

    Raises:
        NoHistory: This is no repository, or one without that commit.
    """

    def __init__(self, folder: Path, data_dir: Path, database_url: str) -> None:
        done = subprocess.run(
            ["git", "archive", COMMIT],  # noqa: S607  # that of the path
            cwd=ROOT,
            capture_output=True,
        )
        if done.returncode:
            raise NoHistory(f"no release 1.0.0 here: {done.stderr.decode().strip()}")
        with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
            archive.extractall(folder, filter="data")
        self._folder = folder
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": os.environ["HOME"],
            "PYTHONPATH": str(folder),
            "MEMORYMARK_DATA_DIR": str(data_dir),
            "DATABASE_URL": database_url,
        }

    def manage(self, *arguments: str) -> str:
        """Run one of its management commands; returns its output."""
        return run_python(
            self._environment, str(self._folder / "manage.py"), *arguments, folder=self._folder
        )

    def fill(self) -> dict[str, Any]:
        """Create its tables, two members and three analyses.

        Returns:
            ``token`` of a member for the API, ``shared``, the key of a share link, and ``done``,
            the id of the analysis that has succeeded.
        """
        self.manage("migrate", "-v0")
        found: dict[str, Any] = json.loads(self.manage("shell", "-c", _FILL).splitlines()[-1])
        return found
