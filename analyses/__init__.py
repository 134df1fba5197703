"""Analyses: stored, queued, run by a worker, shown on pages and given by the API."""
