"""Training scripts as people write them, predicted unchanged: ``python -m benchmarks.real_code``.

The scripts stand in ``scripts``, each in a style of its own and none made for MemoryMark. Each is
predicted for a GPU with the command that a user would type, which is timed; and it is traced for
the CPU and run there, where the peaks of both have to be equal to the byte.
"""
