"""Memory that decompositions of matrices take on a GPU besides their results.

PyTorch calls cuSOLVER for them (native/cuda/linalg/BatchLinearAlgebraLib.cpp). cuSOLVER gives the
size of a workspace only on a GPU, and its documentation gives no formula, so the sizes are those
that LAPACK documents for the same task.
"""

from __future__ import annotations

from typing import Any

import torch

_aten = torch.ops.aten

_SVD = _aten._linalg_svd.default
_EIGH = _aten._linalg_eigh.default
_QR = _aten.linalg_qr.default
_LEAST_SQUARES = _aten.linalg_lstsq.default
_DECOMPOSITIONS = (_SVD, _EIGH, _QR, _LEAST_SQUARES)
MAKERS = frozenset(str(one._overloadpacket) for one in _DECOMPOSITIONS)

_ROWS_OF_SVD = 262
"""Rows of the workspace: cuSOLVER (CUDA 12.8) requested 4.10 GiB for a matrix of 3 by 2^20 complex
numbers, 262 for each column (https://github.com/pytorch/pytorch/pull/155811)."""
_QR_BLOCK = 32
"""Columns that LAPACK's geqrf and orgqr work on at once."""
FACTORS = (0, 3)
"""Bounds of an assumed workspace, as multiples of it; nothing published narrows them."""

ASSUMED = (
    "The peak includes a decomposition of matrices. cuSOLVER does not document its workspace: "
    "LAPACK's is assumed, and the range of memory covers none to three times as much. "
    "Step times leave the decompositions out."
)
"""Caveat of an answer where a decomposition decides."""


def workspace_bytes(func: Any, args: tuple[Any, ...]) -> int:
    """The bytes that a decomposition takes while it runs; 0 of another operator.

    * An SVD works on a copy of the matrix (``svd_cusolver``), with what LAPACK's gesdd takes for
      all k singular vectors of both sides, 4k² + 7k numbers.
    * ``eigh`` works in the tensor of its result, with syevd's 2n² + 6n + 1.
    * QR works in the tensor of Q, with n numbers and a block of columns. Least squares do so with a
      copy of the matrix.

    Args:
        func: The operator.
        args: Its arguments; the first is the matrix.
    """
    if func not in _DECOMPOSITIONS:
        return 0
    matrix: torch.Tensor = args[0]
    rows, columns = matrix.shape[-2:]
    short, long = sorted((rows, columns))
    width = matrix.element_size()
    if func is _SVD:
        work = 4 * short**2 + 7 * short + _ROWS_OF_SVD * long
        return int(width * (matrix.numel() + work))
    if func is _EIGH:
        return int(width * (2 * rows**2 + 6 * rows + 1))
    copied = matrix.numel() if func is _LEAST_SQUARES else 0
    return int(width * (copied + (1 + _QR_BLOCK) * columns))
