"""The dispatch mode that others here are made from."""

from __future__ import annotations

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


class OperatorMode(TorchDispatchMode):
    """Handles each operator that runs while it is the active dispatch mode."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # PyTorch has no type for it

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled here: PyTorch's guard against that would cost a tenth of a trace."""
        return False

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        return self.handle(func, args, kwargs or {})

    def handle(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operator, or what is to be in its place.

        Args:
            func: The operator.
            args: Its operands by position.
            kwargs: Its operands by name.

        Returns:
            Its result.
        """
        raise NotImplementedError
