"""What was measured and predicted, a JSON file each, which one command makes again.

``make results`` runs the commands of :mod:`engine.benchmarks.results.commands`, writes what each
prints into a file of this folder, and fills the tables of README and docs from those files.
"""
