"""What installed libraries choose under CUDA's name: each is asked, in a process of its own.

``python -m torch_loom.tools.library_choices`` prints them as JSON. `loom doctor` starts it under that name.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any


def _accelerate() -> str:
    Accelerator: Any = import_module("accelerate").Accelerator  # noqa: N806

    return f"Accelerator() trains on {Accelerator().device}: torch.cuda.is_available() says so"


def _transformers() -> str:
    utils: Any = import_module("transformers.utils")
    dtypes = "bf16=True and fp16=True" if utils.is_torch_bf16_gpu_available() else "fp16=True"
    return f"Trainer trains on cuda:0, and takes {dtypes}; it needs accelerate"


def _lightning() -> str:
    accelerators: Any = import_module("lightning.pytorch.accelerators")
    return f"Trainer() takes CUDAAccelerator: {accelerators.CUDAAccelerator.auto_device_count()} devices"


def _triton() -> str:
    from torch_loom import config

    chosen = (
        "Inductor generates Triton's kernels"
        if config.generates_triton()
        else "Inductor generates C++, not Triton's kernels"
    )
    return f"{chosen}; kernels are compiled for the host, and each access is checked"


def _torchvision() -> str:
    return "its ops run as on the CPU; CUDA kernels of its own do not run"


def _bitsandbytes() -> str:
    return "registered as a backend: products of 8 and 4 bits run in torch ops"


def _pynvml() -> str:
    pynvml: Any = import_module("pynvml")
    pynvml.nvmlInit()
    return f"nvidia-ml-py finds torch-loom's NVML: {pynvml.nvmlDeviceGetCount()} devices"


def _refused() -> str:
    return "is refused: it would read the devices' memory on a GPU"


# By the name of the distribution.
QUESTIONS: Mapping[str, Callable[[], str]] = {
    "accelerate": _accelerate,
    "transformers": _transformers,
    "lightning": _lightning,
    "triton": _triton,
    "torchvision": _torchvision,
    "bitsandbytes": _bitsandbytes,
    "nvidia-ml-py": _pynvml,
    "cupy": _refused,
    "numba": _refused,
}


def ask() -> dict[str, dict[str, Any]]:
    """Return what each installed library says, by its name: ``version``, and ``choice`` or ``error``."""
    found: dict[str, dict[str, Any]] = {}
    for name, question in QUESTIONS.items():
        try:
            found[name] = {"version": version(name)}
        except PackageNotFoundError:
            continue
        try:
            found[name]["choice"] = question()
        except Exception as error:
            found[name]["error"] = f"{type(error).__name__}: {error}"
    return found


def main() -> None:
    """Print them; what libraries print goes to standard error."""
    with warnings.catch_warnings(), redirect_stdout(sys.stderr):
        warnings.simplefilter("ignore")
        found = ask()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
