"""Evidence from a real GPU: predictions next to measurements.

    python -m benchmarks.gpu                  # under 9 minutes, on one CUDA GPU
    python -m benchmarks.gpu sweep --rows FILE --kernels FILE  # the same, of 30 other workloads
    python -m benchmarks.gpu report FILE      # errors, wrong verdicts, limits, searches
    python -m benchmarks.gpu predict FILE     # after a change of the predictor, on any machine
    python -m benchmarks.gpu calibrate FILE   # fit constants to one half of the workloads

It needs PyTorch (2.11 or newer), transformers (5.17 or newer), Pillow and this repository, but no
network. LoRA needs peft, and two of the compared searches need Lightning and Accelerate; what is
not installed is skipped with a message.

Each trial runs in its own process. Measured are:

* peak allocated, peak reserved, device used and step time of 16 workloads at several batch sizes
* the largest batch, certified on both sides (it fits, the next one does not), on the whole device
  and at 16, 24, 40 and 80 GiB, emulated by ``torch.cuda.set_per_process_memory_fraction``
* the searches of MemoryMark, Lightning, Accelerate and a linear scan for the same limit
* the memory of context, libraries and workspaces alone

An emulated capacity leaves out what libraries load during the steps, so it is a few MiB larger than
a real GPU with that memory.

The file is written after every trial. The same command resumes a run that was interrupted or ran
out of time; the most important items come first, and those left out are listed. Everything takes
two to four runs on one H200 (estimated from predicted step times). A file of another device or with
other versions is refused.

To choose another file, and to name the commit where there is no git history:

    python3 -m benchmarks.gpu --out /some/folder/h200.json --commit COMMIT

``--quick`` runs everything on two small models in a minute or two, with ``--device cpu`` also on a
machine without a GPU. Its file is kept apart, since it is not evidence.
"""
