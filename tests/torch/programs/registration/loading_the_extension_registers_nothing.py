import importlib.util
import sysconfig
from pathlib import Path

import torch


def registered():
    kinds = ("", "Autograd", "Autocast", "Sparse", "SparseCsr", "Quantized", "NestedTensor")
    keys = [kind + "PrivateUse1" for kind in kinds]
    return [torch._C._dispatch_get_registrations_for_dispatch_key(key) for key in keys]


before = registered()
path = Path(importlib.util.find_spec("torch_loom").origin).parent
file = path / ("_C" + sysconfig.get_config_var("EXT_SUFFIX"))
spec = importlib.util.spec_from_file_location("_C", file)
extension = importlib.util.module_from_spec(spec)
spec.loader.exec_module(extension)
assert registered() == before
assert torch._C._get_privateuse1_backend_name() == "privateuseone"
assert not extension.is_initialized() and extension.device_count() == 0

extension.register_device("npu")
num_early = len(registered()[0])
assert num_early > 100
assert torch._C._get_privateuse1_backend_name() == "npu"
for name in ("npu", "cuda"):
    try:
        extension.register_device(name)
    except RuntimeError as error:
        assert f"'{name}' cannot be registered" in str(error)
        assert "this process has the device 'npu' already" in str(error)
    else:
        raise AssertionError(name)
