"""A GPU that is not there, for the engine's CUDA side: ``torch.cuda`` over tensors of the CPU.

With :data:`FOLDER` on ``PYTHONPATH``, every process of a trial finds this GPU, an NVIDIA A10: its
tensors are the CPU's, its caching allocator the engine's model of PyTorch's, and its memory runs
out as on a GPU. What depends on CUDA's kernels is not here: their temporary memory and their time.
"""

from pathlib import Path

FOLDER = Path(__file__).parent
"""Its ``sitecustomize`` makes the GPU."""
