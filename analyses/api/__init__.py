"""The REST API, mounted at ``/api/v1/``: what the pages do, for scripts.

A module for each resource; ``views`` and ``schema`` hold what they share.
"""
