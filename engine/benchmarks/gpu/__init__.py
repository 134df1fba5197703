"""Evidence from a real GPU: what the engine predicts beside what the GPU really does.

    python -m engine.benchmarks.gpu                  # under 9 minutes, on one CUDA GPU
    python -m engine.benchmarks.gpu report FILE      # errors, wrong verdicts, limits, searches
    python -m engine.benchmarks.gpu predict FILE     # after a change of the predictor, anywhere
    python -m engine.benchmarks.gpu calibrate FILE   # constants fitted to one half of the workloads

It needs PyTorch (2.11 or newer), transformers (5.17 or newer), Pillow and this repository, no
network. LoRA needs peft, and the searches that are compared need Lightning and Accelerate: what is
missing is skipped with a word.

Measured, each trial in a process of its own: peak allocated, reserved, device used and step time of
16 workloads at several batch sizes; the largest batch, certified on both sides (it fits, the next
one does not), on the whole device and at 16, 24, 40 and 80 GiB, which
``torch.cuda.set_per_process_memory_fraction`` emulates; a linear scan, Lightning, Accelerate and
MemoryMark searching for the same limit; and what context, libraries and workspaces take by
themselves. An emulated capacity leaves out what libraries load during the steps, so it is larger by
some MiB than a real GPU of that memory.

The file is written after every trial. A run that was ended, or that ran out of its budget, is gone
on with by the same command; the items it had no time for are named, the most important come first.
Everything takes two to four runs on one H200 (estimated from predicted step times). A file of
another device or of other versions is refused.

Where the file has to lie elsewhere, and where the code is without its history:

    python3 -m engine.benchmarks.gpu --out /some/folder/h200.json --commit COMMIT

``--quick`` tries the whole flow on two small models in a minute or two, with ``--device cpu`` on a
machine without a GPU; its file is kept apart and is no evidence.
"""
