"""Your own training: traced on fake tensors on a machine that seems to have the GPU, or run.

It comes as a factory of steps (``--factory module:function``), as a program (``train.py``) or live,
set up in this process. A request says what to find out; :mod:`.trace` follows the steps,
:mod:`.machine` is the GPU that they see, and ``values/`` stands in for values that nobody knows.
Samples determine the input size of a known model.
"""
