"""Versions that libraries ask for first: on an NVIDIA GPU those of the running release's default wheel."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import PythonRunner

NAME = {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_MEMORY": "2GiB"}
PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"

ANSWERS = """
import torch
from torch.utils import collect_env

def answers():
    from torch.version import cuda
    assert cuda == torch.version.cuda == getattr(torch.version, "cuda", "none"), cuda
    assert torch.backends.cuda.is_built() and torch.cuda.is_available()
    cudnn = torch.backends.cudnn
    return cuda, cudnn.is_available(), cudnn.version(), torch._C._cuda_getCompiledVersion()
"""


def test_a_gpu_has_the_versions_of_the_default_wheel(fork_python: PythonRunner) -> None:
    fork_python(
        f"""
        import torch_loom
        exec({ANSWERS!r})
        expected = ("13.0", True, 92000, 13000)
        assert answers() == expected and not torch.cuda.is_initialized()
        assert torch.cuda.nccl.version() == (2, 29, 7)
        assert torch._C._cuda_getDriverVersion() == 13000
        assert torch._C._cudnn.getRuntimeVersion() == torch._C._cudnn.getCompileVersion() == (9, 20, 0)
        assert torch._C._cudnn.is_cuda and torch._C._cudnn.RNNMode.lstm == 2
        assert torch.cuda.get_gencode_flags() == "-gencode compute=compute_90,code=sm_90"
        torch.cuda.init()
        assert not torch.backends.cudnn.is_acceptable(torch.ones(1, device="cuda"))
        assert answers() == expected and vars(torch.version)["cuda"] == "13.0"
        try:
            torch.version.no_such_name
        except AttributeError as error:
            assert "no_such_name" in str(error)
        else:
            raise AssertionError
        """,
        NAME,
    )


def test_the_running_release_is_known(fork_python: PythonRunner) -> None:
    """The release that pyproject.toml asks for has an entry of its own."""
    fork_python(
        f"""
        import pathlib, torch_loom
        from torch_loom.cuda.release import _DEFAULT_WHEELS
        release = ".".join(torch.__version__.split(".")[:2])
        assert release in _DEFAULT_WHEELS
        assert f"torch=={{release}}.*" in pathlib.Path({str(PYPROJECT)!r}).read_text()
        """,
        NAME,
    )


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"TORCH_LOOM_CUDA_VERSION": "12.8"}, ("12.8", True, 92000, 12080)),
        ({"TORCH_LOOM_CUDA_VERSION": "none"}, (None, False, None, 0)),
        ({"TORCH_LOOM_CHIP": "wormhole_b0"}, (None, False, None, 0)),
        ({"TORCH_LOOM_CHIP": "a100"}, ("13.0", True, 92000, 13000)),
        ({"TORCH_LOOM_CHIP": "loom1", "TORCH_LOOM_CUDA_VERSION": "12.6"}, ("12.6", True, 92000, 12060)),
    ],
)
def test_the_variable_and_the_chip_decide(
    fork_python: PythonRunner, variables: dict[str, str], expected: object
) -> None:
    fork_python(
        f"""
        import torch_loom
        exec({ANSWERS!r})
        assert answers() == {expected!r}, answers()
        torch.cuda.init()
        assert answers() == {expected!r}, answers()
        """,
        {**NAME, **variables},
    )


def test_a_chip_that_is_configured_counts(fork_python: PythonRunner) -> None:
    fork_python(
        """
        import torch_loom
        assert torch.version.cuda == "13.0"
        torch.loom.configure(chip="grayskull")
        assert torch.version.cuda is None
        try:
            torch.cuda.get_gencode_flags()
        except NotImplementedError as error:
            assert "nvcc's options" in str(error)
        else:
            raise AssertionError
        torch.version.cuda = "11.0"  # the program's own
        torch.cuda.init()
        assert torch.version.cuda == "11.0"
        """,
        NAME,
    )


def test_a_bad_version_is_an_error(fork_python: PythonRunner) -> None:
    done = fork_python(
        "import torch_loom; torch.loom.init()",
        {**NAME, "TORCH_LOOM_CUDA_VERSION": "thirteen"},
        check=False,
    )
    assert (
        "TORCH_LOOM_CUDA_VERSION='thirteen': not a version. Allowed: major.minor (12.8); none." in done.stderr
    )


@pytest.mark.slow
def test_compiled_code_asks(warm_python: PythonRunner) -> None:
    warm_python(
        """
        import torch, torch._dynamo
        function = torch.compile(
            lambda x: x + 1 if torch.version.cuda is not None else x, backend="eager", fullgraph=True
        )
        assert function(torch.ones(2, device="cuda")).tolist() == [2, 2]
        """,
        NAME,
    )


@pytest.mark.slow
def test_gradients_are_exchanged_in_bfloat16(warm_python: PythonRunner, tmp_path: Path) -> None:
    """DistributedDataParallel asks for the versions of CUDA and NCCL before it takes such a hook."""
    warm_python(
        f"""
        import torch
        import torch.distributed as dist
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
        dist.init_process_group("nccl", init_method="file://{tmp_path}/store", rank=0, world_size=1)
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2).cuda(), device_ids=[0])
        model.register_comm_hook(None, bf16_compress_hook)
        x = torch.full((3, 4), 1.01, device="cuda")
        model(x).sum().backward()
        gradient = model.module.weight.grad
        expected = torch.full((2, 4), 3.03)
        assert torch.allclose(gradient.cpu(), expected, rtol=1e-2)
        assert gradient.equal(gradient.bfloat16().float())
        assert not torch.allclose(gradient.cpu(), expected, rtol=1e-6)  # it has been rounded
        dist.destroy_process_group()
        """,
        NAME,
    )


def test_one_device_unless_more_are_asked_for(fork_python: PythonRunner) -> None:
    count = "import torch_loom; assert torch.cuda.device_count() == {}"
    fork_python(count.format(1), NAME)
    fork_python(count.format(4), {**NAME, "LOCAL_WORLD_SIZE": "4"})
    fork_python(count.format(3), {**NAME, "LOCAL_WORLD_SIZE": "4", "TORCH_LOOM_DEVICES": "3"})
    fork_python(count.format(2), {**NAME, "TORCH_LOOM_CHIP": "h200,a100"})
    fork_python(count.format(1), {**NAME, "LOCAL_WORLD_SIZE": "all"})
    # The name loom keeps its two, whoever starts the process.
    fork_python("import torch_loom; assert torch.loom.device_count() == 2", {"LOCAL_WORLD_SIZE": "4"})
