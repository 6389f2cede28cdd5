"""What a verification checks, and how close values must be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import torch

from torch_loom.pybuda.declared import Declared, names_near, refused, warns
from torch_loom.pybuda.enums import BackendDevice, BackendType, DeviceMode, TestKind
from torch_loom.pybuda.formats import DataFormat
from torch_loom.pybuda.wanted import Count, From

NUM_GALAXY_CHIPS = 32


class NebulaGalaxy:
    """The chips of a galaxy, in order."""

    chip_ids: ClassVar[list[int]] = list(range(NUM_GALAXY_CHIPS))


_Distance = Annotated[float, From(0)]
Tolerance = _Distance | dict[torch.dtype, _Distance | None] | None
DEFAULT_PCC = 0.99
_PASSES = "verify_all and verify_last say after which passes values are compared"
_EXPORTED = "modules are exported by PyTorch; there is no TVM, and no code is generated"
_NO_STEP = "gradients are compared, and no step is done"


def _sgd() -> dict[str, Any]:
    return {"type": "sgd", "params": {"learning_rate": 50.0}}


@names_near
@dataclass
class VerifyConfig(Declared):
    """A verification; names and defaults are PyBuda's.

    A value passes if it is close (``atol``, ``rtol``; by default within ``relative_atol`` of the largest
    value of the reference), or if its correlation with the reference is ``pcc`` or more.

    Raises:
        PyBudaError: a name is set that does not exist or is refused, or a value is of another type or out of
            range.
    """

    of: ClassVar[str] = "VerifyConfig: "
    graph_name: str = "graph"
    enabled: bool = True
    intermediates: bool = warns("verify_all=True compares after each pass", False)
    rtol: Tolerance = None
    atol: Tolerance = None
    relative_atol: _Distance = 0.1
    pcc: Annotated[float, From(-1, 1)] | None = None
    dump_tensors_path: str = refused("nothing is dumped; verify_device returns what it compared", "")
    run_golden: bool = warns("PyTorch on the host is the reference", True)
    run_net2pipe: bool = warns("each plan is checked when it is made", False)
    golden_ignore_df_precision: bool = warns("atol, rtol and pcc say how close values must be", True)
    chip_ids: list[Any] | None = None
    num_chips: int | None = None
    golden_compare_callback: Callable[[torch.Tensor, torch.Tensor], bool] | None = None
    verify_each_buda_pass: bool = False
    """Compare after every pass of the compiler, as ``verify_all``."""
    verify_all: bool = False
    """Compare after every pass of the compiler, beside the results."""
    verify_last: bool = True
    """Compare after the last pass."""
    verify_post_autograd_passes: bool = warns(_PASSES, True)
    verify_post_placer: bool = warns(_PASSES, True)
    verify_tvm_compile: bool = warns(_EXPORTED, False)
    verify_pybuda_codegen_vs_framework: bool = warns(_EXPORTED, False)
    verify_pipeline_result_vs_framework: bool = True
    waive_gradient_errors: set[str] = field(default_factory=set)
    """Parameters, by name, whose gradients are not compared."""
    sequential: bool = True
    test_kind: TestKind = TestKind.INFERENCE
    devtype: BackendType = BackendType.Golden
    devmode: DeviceMode = warns("verify_module compiles and runs", DeviceMode.CompileAndRun)
    arch: BackendDevice | None = None
    scale_loss: float = 50.0
    optimizer: dict[str, Any] | None = field(default_factory=_sgd, metadata={"warns": _NO_STEP})
    scheduler: dict[str, Any] | None = warns(_NO_STEP, None)
    epochs: Count = 1
    steps: Count = 1
    accumulation_steps: Count = 1
    microbatch_count: Count = 1
    microbatch_size: Count = warns("the first dimension of the inputs says it", 1)
    epoch_breaks: list[str] = warns("pybuda.set_epoch_break says it", [])
    fp32_fallback: DataFormat = DataFormat.Float16_b
    skip_shutdown: bool = False
    tti_path: str | None = warns("TTDevice.compile_to_image writes an image, and load_image runs it", None)
    checkpoint_interval: Count = warns("run_training takes it", 1)
    enable_input_gradient_checking: bool = True
    enable_parameter_gradient_checking: bool = True

    def __post_init__(self) -> None:
        self.verify_all = self.verify_all or self.verify_each_buda_pass

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
