"""``TORCH_LOOM_MATMUL=tensor_core``: the mode is entered for good."""

from __future__ import annotations

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from torch_loom.errors import ConfigurationError
from torch_loom.numerics.tensor_cores.chips import ARCHITECTURES
from torch_loom.numerics.tensor_cores.emulation import HANDLERS, TensorCores, is_composite


class _Refused(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Refuses every product: those of the engine would be other numbers than the ones that were asked for."""

    def __init__(self, chip: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._chip = chip

    def error(self) -> ConfigurationError:
        """A new one each time: an exception that is raised keeps the frames that it went through."""
        return ConfigurationError(
            f"TORCH_LOOM_MATMUL='tensor_core': the matrix instructions of {self._chip}, which "
            f"TORCH_LOOM_CHIP names, have no rule; allowed: chips {', '.join(ARCHITECTURES)}, or "
            "TORCH_LOOM_MATMUL=engine"
        )

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in HANDLERS or "_scaled_dot_product" in func.name():
            raise self.error()
        if is_composite(func):
            with self:
                return func.decompose(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def multiply_by_setting(chip: str) -> None:
    """Enter the mode that ``TORCH_LOOM_MATMUL=tensor_core`` asks for, for good.

    Raises:
        ConfigurationError: the chip has no rule. Products raise it from then on.
    """
    if chip in ARCHITECTURES:
        TensorCores(chip).__enter__()
        return
    refused = _Refused(chip)
    refused.__enter__()  # type: ignore[no-untyped-call]
    raise refused.error()
