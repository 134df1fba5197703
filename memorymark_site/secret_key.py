"""The site's secret key, created on the first start and kept beside the database."""

import os
import secrets
import tempfile
from pathlib import Path

_BYTES = 48


def read_or_create(path: Path) -> str:
    """The key in ``path``; if there is none yet, a new one that only its owner can read.

    The key appears under its name complete or not at all, so that a web process and a worker that
    start together agree on one: a worker with another key would drop every task.

    Raises:
        RuntimeError: If the file is there but empty.
    """
    if not path.exists():
        handle, draft = tempfile.mkstemp(dir=path.parent, prefix=".secret-key-")  # mode 0600
        with os.fdopen(handle, "w") as file:
            file.write(secrets.token_urlsafe(_BYTES))
        try:
            os.link(draft, path)
        except FileExistsError:
            return read_or_create(path)  # another process was first: its key is the one
        finally:
            Path(draft).unlink()
    key = path.read_text().strip()
    if not key:
        raise RuntimeError(f"{path} is empty; delete it and restart (members must sign in again)")
    return key
