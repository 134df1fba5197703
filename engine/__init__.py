"""MemoryMark's engine: how much memory, time and money a training step takes at each batch size.

Plain Python with no Django. The data classes (:mod:`engine.workload`, :mod:`engine.gpus`,
:mod:`engine.result`) import neither torch nor transformers, so a web process can use them.
"""
