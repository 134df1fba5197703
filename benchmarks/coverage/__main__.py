"""The command: ``python -m benchmarks.coverage [TYPE ...]``."""

import sys

from .sweep import main

sys.exit(main())
