"""PyBuda's API over torch-loom's pipelines: the names, signatures and values of its documentation.

``import torch_loom.compat.pybuda`` makes ``import pybuda`` find it.
"""

import sys

from torch_loom.pybuda import (
    _C,
    ci,
    config,
    module,
    op,
    op_repo,
    optimizers,
    pybudaglobal,
    query,
    run,
    schedulers,
    torch_schedulers,
    transformers,
    utils,
    verify,
)
from torch_loom.pybuda._C import k_dim
from torch_loom.pybuda.compile import CompileResults, pybuda_compile
from torch_loom.pybuda.config import (
    CompilerConfig,
    _internal_insert_fj_buffering_nop,
    configure_mixed_precision,
    insert_buffering_nop,
    insert_nop,
    override_dram_queue_placement,
    override_op_size,
    set_chip_break,
    set_configuration_options,
    set_epoch_break,
)
from torch_loom.pybuda.cpudevice import CPUDevice, GPUDevice
from torch_loom.pybuda.device import Device
from torch_loom.pybuda.enums import BackendDevice, BackendType, CompileDepth, DeviceMode, PerfTraceLevel
from torch_loom.pybuda.execution.frontends import OnnxModule, TFModule, absent_frontend
from torch_loom.pybuda.formats import DataFormat, MathFidelity
from torch_loom.pybuda.module import Module, PyBudaModule, PyTorchModule
from torch_loom.pybuda.optimizers import LAMB, LARS, SGD, Adam, AdamW
from torch_loom.pybuda.parameter import Parameter
from torch_loom.pybuda.pybudaglobal import (
    get_tenstorrent_device,
    is_silicon,
    pybuda_reset,
    set_device_pipeline,
)
from torch_loom.pybuda.run.api import (
    detect_available_devices,
    error_raised,
    get_intermediates_queue,
    get_loss_queue,
    get_parameter_checkpoint,
    get_parameter_gradients,
    initialize_pipeline,
    run_backward,
    run_forward,
    run_generate,
    run_generative_inference,
    run_inference,
    run_optimizer,
    run_schedulers,
    run_training,
    shutdown,
    sync,
    update_device_parameters,
)
from torch_loom.pybuda.tensor import SomeTensor, Tensor, TensorShape
from torch_loom.pybuda.torch_compile import compile_torch
from torch_loom.pybuda.ttdevice import TTDevice
from torch_loom.pybuda.tti import TTDeviceImage
from torch_loom.pybuda.verify import VerifyConfig
from torch_loom.pybuda.verify.backend import verify_module, verify_module_pipeline

# Names that the original has in a module, and that another module defines here.
for _module, _names in (
    (module, {"OnnxModule": OnnxModule, "TFModule": TFModule}),
    (verify, {"verify_module": verify_module, "verify_module_pipeline": verify_module_pipeline}),
):
    vars(_module).update(_names)

TFGraphDefModule = absent_frontend("TFGraphDefModule", "TensorFlow graphs")
TFLiteModule = absent_frontend("TFLiteModule", "TensorFlow Lite")
MXNetModule = absent_frontend("MXNetModule", "MXNet")
JaxModule = absent_frontend("JaxModule", "JAX")

pybuda = sys.modules[__name__]  # for `from pybuda import pybuda`, which programs say

__all__ = [
    "LAMB",
    "LARS",
    "SGD",
    "_C",
    "Adam",
    "AdamW",
    "BackendDevice",
    "BackendType",
    "CPUDevice",
    "CompileDepth",
    "CompileResults",
    "CompilerConfig",
    "DataFormat",
    "Device",
    "DeviceMode",
    "GPUDevice",
    "JaxModule",
    "MXNetModule",
    "MathFidelity",
    "Module",
    "OnnxModule",
    "Parameter",
    "PerfTraceLevel",
    "PyBudaModule",
    "PyTorchModule",
    "SomeTensor",
    "TFGraphDefModule",
    "TFLiteModule",
    "TFModule",
    "TTDevice",
    "TTDeviceImage",
    "Tensor",
    "TensorShape",
    "VerifyConfig",
    "_internal_insert_fj_buffering_nop",
    "ci",
    "compile_torch",
    "config",
    "configure_mixed_precision",
    "detect_available_devices",
    "error_raised",
    "get_intermediates_queue",
    "get_loss_queue",
    "get_parameter_checkpoint",
    "get_parameter_gradients",
    "get_tenstorrent_device",
    "initialize_pipeline",
    "insert_buffering_nop",
    "insert_nop",
    "is_silicon",
    "k_dim",
    "op",
    "op_repo",
    "optimizers",
    "override_dram_queue_placement",
    "override_op_size",
    "pybuda_compile",
    "pybuda_reset",
    "pybudaglobal",
    "query",
    "run",
    "run_backward",
    "run_forward",
    "run_generate",
    "run_generative_inference",
    "run_inference",
    "run_optimizer",
    "run_schedulers",
    "run_training",
    "schedulers",
    "set_chip_break",
    "set_configuration_options",
    "set_device_pipeline",
    "set_epoch_break",
    "shutdown",
    "sync",
    "torch_schedulers",
    "transformers",
    "update_device_parameters",
    "utils",
    "verify",
]
