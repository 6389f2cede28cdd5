"""What a verification checks, and how close values must be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch

from torch_loom.errors import PyBudaError
from torch_loom.pybuda.enums import BackendDevice, BackendType, DeviceMode, TestKind
from torch_loom.pybuda.formats import DataFormat

NUM_GALAXY_CHIPS = 32


class NebulaGalaxy:
    """The chips of a galaxy, in order."""

    chip_ids: ClassVar[list[int]] = list(range(NUM_GALAXY_CHIPS))


Tolerance = float | dict[torch.dtype, float] | None
DEFAULT_PCC = 0.99


def _sgd() -> dict[str, Any]:
    return {"type": "sgd", "params": {"learning_rate": 50.0}}


@dataclass
class VerifyConfig:
    """A verification; names and defaults are PyBuda's.

    A value passes if it is close (``atol``, ``rtol``; by default within ``relative_atol`` of the largest
    value of the reference), or if its correlation with the reference is ``pcc`` or more.

    Raises:
        PyBudaError: a tolerance below 0, a ``pcc`` outside -1 to 1, or a count below 1.
    """

    graph_name: str = "graph"
    enabled: bool = True
    intermediates: bool = False
    rtol: Tolerance = None
    atol: Tolerance = None
    relative_atol: float = 0.1
    pcc: float | None = None
    dump_tensors_path: str = ""
    run_golden: bool = True
    run_net2pipe: bool = False
    """Accepted: each plan is checked when it is made."""
    golden_ignore_df_precision: bool = True
    chip_ids: list[int] | None = None
    num_chips: int | None = None
    golden_compare_callback: Callable[[torch.Tensor, torch.Tensor], bool] | None = None
    verify_each_buda_pass: bool = False
    """Compare after every pass of the compiler, as ``verify_all``."""
    verify_all: bool = False
    """Compare after every pass of the compiler, beside the results."""
    verify_last: bool = True
    """Compare after the last pass."""
    verify_post_autograd_passes: bool = True
    verify_post_placer: bool = True
    verify_tvm_compile: bool = False
    verify_pybuda_codegen_vs_framework: bool = False
    verify_pipeline_result_vs_framework: bool = True
    waive_gradient_errors: set[str] = field(default_factory=set)
    """Parameters, by name, whose gradients are not compared."""
    sequential: bool = True
    test_kind: TestKind = TestKind.INFERENCE
    devtype: BackendType = BackendType.Golden
    devmode: DeviceMode = DeviceMode.CompileAndRun
    arch: BackendDevice | None = None
    scale_loss: float = 50.0
    optimizer: dict[str, Any] | None = field(default_factory=_sgd)
    scheduler: dict[str, Any] | None = None
    epochs: int = 1
    steps: int = 1
    accumulation_steps: int = 1
    microbatch_count: int = 1
    microbatch_size: int = 1
    epoch_breaks: list[str] = field(default_factory=list)
    fp32_fallback: DataFormat = DataFormat.Float16_b
    skip_shutdown: bool = False
    tti_path: str | None = None
    checkpoint_interval: int = 1
    enable_input_gradient_checking: bool = True
    enable_parameter_gradient_checking: bool = True

    def __post_init__(self) -> None:
        self.verify_all = self.verify_all or self.verify_each_buda_pass
        if self.dump_tensors_path:
            raise PyBudaError(
                "VerifyConfig: dump_tensors_path: nothing is dumped; verify_device returns what it compared"
            )
        for name in ("rtol", "atol", "relative_atol"):
            given = getattr(self, name)
            for value in given.values() if isinstance(given, dict) else [given]:
                if value is not None and value < 0:
                    raise PyBudaError(f"VerifyConfig: {name} is {value}; it is 0 or more")
        if self.pcc is not None and not -1 <= self.pcc <= 1:
            raise PyBudaError(f"VerifyConfig: pcc is {self.pcc}; it is -1 to 1")
        for name in ("epochs", "steps", "accumulation_steps", "microbatch_count", "microbatch_size"):
            if getattr(self, name) < 1:
                raise PyBudaError(f"VerifyConfig: {name} is {getattr(self, name)}; it is 1 or more")

    @classmethod
    def disabled(cls) -> VerifyConfig:
        """Return a configuration that compares nothing."""
        return cls(enabled=False, verify_last=False, verify_all=False)

    def total_number_of_inputs(self) -> int:
        """Return how many micro-batches a run with these counts consumes."""
        return self.epochs * self.steps * self.accumulation_steps * self.microbatch_count

    def tolerance(self, name: str, dtype: torch.dtype) -> float | None:
        """Return ``rtol`` or ``atol`` for values of a dtype; None where it is not set."""
        given: Tolerance = getattr(self, name)
        return given.get(dtype) if isinstance(given, dict) else given
