"""Measures what a machine's predictions rest on: ``memorymark selfcheck``.

Each kind of measurement runs in a process of its own, since one that has touched CUDA counts its
own context in the next, and an error or a hang in one leaves the others.
"""
