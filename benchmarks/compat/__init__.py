"""The releases of PyTorch, transformers and Python that people have, tried one after another.

    python -m benchmarks.compat --wheel dist/memorymark-*.whl      # the whole matrix: hours
    python -m benchmarks.compat --wheel ... --torch 2.11.0         # a part of it
    python -m benchmarks.compat.real_steps                         # traces vs. real steps

A build is what ``pip install`` gives a user: on Linux, PyTorch with CUDA. Each gets an environment
of its own, in which this repository's wheel is installed and answers the commands of
:mod:`benchmarks.compat.cases`. Each answer must be that of the pinned PyTorch with the same
transformers, to the byte, or ``differences.toml`` must say which release explains the difference.
No GPU is needed.
"""
