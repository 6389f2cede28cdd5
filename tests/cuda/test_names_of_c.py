"""Every name of CUDA's in ``torch._C``, as PyTorch's stubs and own Python list them, is there and answers."""

from __future__ import annotations

import pytest

from tests.conftest import PythonRunner

NAME = {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_MEMORY": "2GiB"}

# Why a name is not here.
LEFT_OUT = {
    "_cuda_tunableop_get_rotation_buffer_size": "misspelt in the stubs: get_rotating_buffer_size",
    "_FastCudaLauncher": "Inductor launches Triton's kernels without it where it is not there",
}
# What ends or changes more than its answer.
NOT_CALLED = {
    "_cuda_init": "a first use",
    "_cuda_changeCurrentAllocator": "comes before the first allocation",
}

LISTED = """
import ast, pathlib, re, torch

OURS = re.compile(r"_\\w*(?:[cC]uda|CUDA|cudnn|nccl|cufft)\\w*")
folder = pathlib.Path(torch.__file__).parent

def stubs():
    return ast.parse((folder / "_C" / "__init__.pyi").read_text()).body

def listed():
    names = {node.name for node in stubs() if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    return {name for name in names if OURS.fullmatch(name)}

def used():
    names = set()
    for file in ("cuda", "backends", "_inductor", "_dynamo", "accelerator", "utils", "distributed", "nn"):
        for path in (folder / file).rglob("*.py"):
            text = path.read_text()
            names |= set(re.findall(r"torch\\._C\\.(\\w+)", text))
            for block in re.findall(r"from torch\\._C import (\\([^)]*\\)|.*)", text):
                names |= set(re.findall(r"\\w+", block))
    return {name for name in names if OURS.fullmatch(name)}
"""


def test_every_name_is_there(fork_python: PythonRunner) -> None:
    fork_python(
        f"""
        import torch_loom
        exec({LISTED!r})
        names = listed() | used()
        assert len(listed()) > 90 and len(used()) > 90, (len(listed()), len(used()))
        absent = {{name for name in names if not hasattr(torch._C, name)}}
        assert absent == {set(LEFT_OUT)!r}, absent
        properties = next(node for node in stubs() if getattr(node, "name", "") == "_CudaDeviceProperties")
        fields = [node.target.id for node in properties.body if isinstance(node, ast.AnnAssign)]
        device = torch.cuda.get_device_properties(0)
        assert isinstance(device, torch._C._CudaDeviceProperties) and len(fields) >= 16
        assert [field for field in fields if not hasattr(device, field)] == []
        """,
        NAME,
    )


def test_questions_without_arguments_are_answered(fork_python: PythonRunner) -> None:
    """By what the stubs say that they return, or by one sentence that says what the name stands for."""
    fork_python(
        f"""
        import torch_loom
        exec({LISTED!r})
        from torch_loom.errors import NotApplicableError
        kinds = {{"_int": int, "_bool": bool, "_float": float, "str": str, "bytes": bytes}}
        kinds |= {{"tuple": tuple, "dict": dict, "list": list, "None": type(None)}}
        torch.cuda.init()
        answered, refused = {{}}, {{}}
        for node in stubs():
            if not isinstance(node, ast.FunctionDef) or not OURS.fullmatch(node.name) or node.args.args:
                continue
            if node.name in {set(LEFT_OUT) | set(NOT_CALLED)!r}:
                continue
            try:
                answered[node.name] = value = getattr(torch._C, node.name)()
            except NotApplicableError as error:
                assert " stands for " in str(error), (node.name, error)
                refused[node.name] = str(error)
                continue
            returned = ast.unparse(node.returns).split("[")[0]
            expected = tuple(kinds[kind] for kind in returned.split(" | ") if kind in kinds)
            assert not expected or isinstance(value, expected), (node.name, value, returned)
        assert set(refused) == {{
            "_cuda_getCurrentBlasHandle", "_cuda_getCurrentSolverHandle", "_nccl_unique_id"
        }}, refused
        assert len(answered) > 35, sorted(answered)
        assert answered["_cuda_getDeviceCount"] == 1 and answered["_cuda_getDevice"] == 0
        assert answered["_nccl_version"] == 2 << 32 | 29 << 16 | 7 and answered["_nccl_version_suffix"] == b""
        assert answered["_cuda_getArchFlags"] == "sm_90" and answered["_cuda_getAllocatorBackend"] == "native"
        """,
        NAME,
    )


def test_functions_that_have_a_counterpart_are_that(fork_python: PythonRunner) -> None:
    fork_python(
        """
        import torch_loom
        c = torch._C
        one, other = torch.ones(3, device="cuda:0"), torch.full((3,), 2.0, device="cuda:1")
        c._nccl_all_reduce([one, other], [one, other], 0)
        assert one.tolist() == other.tolist() == [3, 3, 3]
        c._nccl_broadcast([one.fill_(7), other], 0)
        assert other.tolist() == [7, 7, 7]
        c._nccl_reduce([one, other], one, 0, 0, None, None)
        assert one.tolist() == [14, 14, 14]
        raises("NotApplicableError", "stands for", lambda: c._nccl_init_rank(1, b"", 0))
        raises("NotApplicableError", "stands for", lambda: c._StaticCudaLauncher._load_kernel("", "", 0, 0))

        code = "template <typename T> T twice(T x, T alpha) { return alpha * x; }"
        launch = c._cuda_jiterator_compile_and_launch_kernel
        x = torch.ones(2, device="cuda")
        assert launch(code, "twice", False, 1, (x,), {"alpha": 3.0}).tolist() == [3, 3]

        c._cuda_tunableop_set_max_tuning_duration(5)
        assert torch.cuda.tunable.get_max_tuning_duration() == 5
        assert c._cuda_tunableop_get_max_tuning_duration() == 5

        metadata = {"dtype": torch.int32, "size": (2,), "stride": (2,), "storage_offset": 1}
        x = torch.arange(4, dtype=torch.int32, device="cuda:1")
        view = c._construct_CUDA_Tensor_From_Storage_And_Metadata(metadata, x.untyped_storage())
        assert view.tolist() == [1, 3] and view.device == x.device and view.data_ptr() == x[1:].data_ptr()

        c._cuda_record_memory_history_legacy(True, True, 10, False, False, False, False, False, [])
        assert c._cuda_isHistoryEnabled()
        c._cuda_record_memory_history_legacy(False, True, 1, False, False, True, False, False, [])
        # PyTorch's own functions call torch._C by the names of their modules.
        torch.cuda.memory._record_memory_history_legacy(True, trace_alloc_max_entries=10)
        assert c._cuda_isHistoryEnabled()
        torch.cuda.memory._record_memory_history_impl(None)
        """,
        {**NAME, "TORCH_LOOM_DEVICES": "2"},
    )


@pytest.mark.slow
def test_collect_env_says_what_there_is(warm_python: PythonRunner) -> None:
    warm_python(
        """
        from torch.utils import collect_env
        info = collect_env.get_env_info()
        assert info.is_cuda_available == "True" and info.cuda_compiled_version == "13.0", info
        assert "CUDA used to build PyTorch: 13.0" in collect_env.pretty_str(info)
        """,
        NAME,
    )
