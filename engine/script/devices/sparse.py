"""Sparse tensors in a script that is traced: refused by name.

What they take depends on how many elements they have, which is a matter of values: so many remain
once doubles are added up (``coalesce``), so many has the product of two. Fake tensors have no
storage for them either.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache, wraps
from typing import Any

import torch

from ...core.errors import NotPredictable

_LAYOUTS = {
    torch.sparse_coo,
    torch.sparse_csr,
    torch.sparse_csc,
    torch.sparse_bsr,
    torch.sparse_bsc,
}
_MAKING = ("sparse_coo", "sparse_compressed", "sparse_csr", "to_sparse", "sparse_mask", "spdiags")
"""Parts of the names of operators that make sparse tensors."""


WHY = (
    "it uses sparse tensors, and what they take depends on their values; use dense ones "
    "(nn.Embedding without sparse=True; index_add or scatter_add over a graph's edges)"
)
"""Why there is no prediction, and what there is one of."""

_ERRORS = re.compile(r"from the 'Sparse\w+' backend|Sparse\w*TensorImpl")


def refuse_sparse(func: Any, operands: Iterable[torch.Tensor]) -> None:
    """Refuse an operator that makes sparse tensors or takes them.

    Args:
        func: The operator.
        operands: The tensors among its arguments.

    Raises:
        NotPredictable: If it does.
    """
    if _makes(func) or any(tensor.layout in _LAYOUTS for tensor in operands):
        raise NotPredictable(WHY)


def names_sparse(error: BaseException) -> bool:
    """Whether an error says that something cannot be done with a sparse tensor.

    So do those about real ones, which are loaded as data: no operator of ours is asked there.
    """
    return isinstance(error, NotImplementedError) and bool(_ERRORS.search(str(error)))


def refused_on_gpu(make: Callable[..., Any]) -> Callable[..., Any]:
    """A constructor of sparse tensors that makes none on the GPU, where C++ asks for a real one."""

    @wraps(make)
    def call(*args: Any, **kwargs: Any) -> Any:
        device = kwargs.get("device")
        if isinstance(device, int) or str(device).startswith("cuda"):
            raise NotPredictable(WHY)
        return make(*args, **kwargs)

    return call


@cache
def _makes(func: Any) -> bool:
    return any(part in func.name() for part in _MAKING)
