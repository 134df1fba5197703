"""``python -m engine`` and ``python -m memorymark``: see :mod:`engine.cli.main`."""

import sys

from .cli.main import main

if __name__ == "__main__":
    sys.exit(main())
