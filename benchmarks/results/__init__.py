"""Published numbers, one JSON file per command that measured or predicted them.

``make results`` runs the commands of :mod:`benchmarks.results.files`, writes what each
prints into a file of this folder, and fills the tables of README and docs from those files.
"""
