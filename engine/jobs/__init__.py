"""Training jobs as schedulers and experiment trackers report them, for the lab's site.

One module a reporter: Slurm's accounting, W&B, MLflow, Kubernetes and dstack. No torch in here; the
packages of W&B and MLflow are imported where they are used.
"""

from __future__ import annotations
