"""Data of a script: its loaders, its samples, its evaluations and epochs."""
