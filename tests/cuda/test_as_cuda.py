"""The devices as CUDA's: programs that say cuda run unchanged."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import PythonRunner

NAME = {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_MEMORY": "2GiB", "TORCH_LOOM_DEVICES": "2"}


@pytest.mark.slow
def test_tensors_are_cudas(warm_python: PythonRunner) -> None:
    warm_python(
        """
        import torch
        x = torch.arange(4.0, device="cuda")
        assert x.is_cuda and str(x.device) == "cuda:0" and x.type() == "torch.cuda.FloatTensor"
        assert isinstance(x, torch.cuda.FloatTensor) and (x + 1).tolist() == [1, 2, 3, 4]
        assert torch.cuda.is_available() and torch.cuda.device_count() == 2
        assert torch.accelerator.current_accelerator().type == "cuda"
        assert torch.cuda.get_device_properties(0).name == torch.cuda.get_device_name() == "NVIDIA H200"
        assert torch.cuda.get_device_properties(0).extra["chip"] == "h200"
        assert torch.cuda.get_arch_list() == ["sm_90"] and torch.loom.current_device() == 0
        assert torch.cuda.memory_allocated() == torch.loom.memory_allocated() == 512
        assert torch.cpu is not torch.cuda and torch.randn(2).device.type == "cpu"
        with torch.loom.explain():
            x.cpu()
        """,
        NAME,
    )


@pytest.mark.slow
def test_training_under_autocast(warm_python: PythonRunner) -> None:
    warm_python(
        """
        import torch
        from torch import nn

        torch.manual_seed(0)
        features = [nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten()]
        model = nn.Sequential(*features, nn.Linear(144, 10)).cuda()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, fused=True)
        scaler = torch.amp.GradScaler("cuda")
        x, target = torch.randn(16, 1, 8, 8).cuda(), torch.randint(10, (16,)).cuda()
        losses = []
        for _ in range(15):
            with torch.autocast("cuda", torch.float16):
                output = model(x)
                assert output.dtype == torch.float16
                loss = nn.functional.cross_entropy(output, target)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
        assert losses[-1] < losses[0] / 2, losses
        assert all(parameter.is_cuda for parameter in model.parameters())
        """,
        NAME,
    )


@pytest.mark.slow
def test_softmax_converts_on_the_way(warm_python: PythonRunner) -> None:
    warm_python(
        """
        import torch
        import torch.nn.functional as F
        torch.manual_seed(0)
        cotangent = torch.randn(4, 5)
        for function in (F.softmax, F.log_softmax):
            x = torch.randn(4, 5).half()
            on_cpu, on_device = x.clone().requires_grad_(), x.cuda().requires_grad_()
            expected, found = function(on_cpu.float(), -1), function(on_device, -1, dtype=torch.float32)
            assert found.dtype == torch.float32
            torch.testing.assert_close(found.cpu(), expected)
            expected.backward(cotangent)
            found.backward(cotangent.cuda())
            assert on_device.grad.dtype == torch.float16
            torch.testing.assert_close(on_device.grad.cpu(), on_cpu.grad)
        with torch.autocast("cuda", torch.float16):
            assert F.softmax(x.cuda(), -1).dtype == torch.float32
        """,
        NAME,
    )


def test_streams_graphs_and_errors(warm_python: PythonRunner) -> None:
    warm_python(
        """
        import torch
        x = torch.ones(4, device="cuda")
        stream, event = torch.cuda.Stream(), torch.cuda.Event()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            y = x @ x
            event.record()
        event.synchronize()
        assert y.item() == 4
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            doubled = x * 2
        x.fill_(5)
        graph.replay()
        assert doubled.tolist() == [10] * 4
        for kind, text, body in (
            (torch.cuda.OutOfMemoryError, "CUDA out of memory. Tried", lambda: x.new_empty(1 << 40)),
            (RuntimeError, "found at least two devices, cuda:0 and cpu!", lambda: x + torch.ones(4)),
            (torch.AcceleratorError, "CUDA error: invalid device ordinal", lambda: x.to("cuda:7")),
            (torch.AcceleratorError, "CUDA error: invalid device ordinal", lambda: torch.cuda.set_device(7)),
            (torch.AcceleratorError, "CUDA error: invalid device ordinal", lambda: torch.cuda.Stream(7)),
            (torch.AcceleratorError, "CUDA error: invalid device ordinal", lambda: torch.cuda.synchronize(7)),
            (AssertionError, "Invalid device id", lambda: torch.cuda.get_device_properties(7)),
            (AttributeError, "there is none", lambda: x.__cuda_array_interface__),
        ):
            try:
                body()
            except kind as error:
                assert text in str(error), error
            else:
                raise AssertionError(text)
        """,
        NAME,
    )


@pytest.mark.slow
def test_storages(warm_python: PythonRunner) -> None:
    warm_python(
        """
        import copy, io, torch
        x = torch.arange(4.0, device="cuda")
        storage = torch.UntypedStorage(8, device="cuda")
        assert storage.device == torch.device("cuda:0") and storage.nbytes() == 8
        assert list(torch.UntypedStorage([1, 2], device="cuda").cpu()) == [1, 2]
        assert torch.UntypedStorage(8).device.type == "cpu" and len(torch.UntypedStorage([1, 2])) == 2
        storage.resize_(0)
        assert storage.nbytes() == 0
        taken = x.untyped_storage()
        taken.resize_(32)
        assert taken.nbytes() == 32 and x.tolist() == [0, 1, 2, 3]
        assert list(taken.clone()) == list(taken.cpu()) and taken.clone().device == x.device
        assert copy.deepcopy(x).tolist() == [0, 1, 2, 3]
        file = io.BytesIO()
        torch.save({"x": x}, file)
        for where, device in ((None, "cuda:0"), ("cuda:1", "cuda:1"), ("cpu", "cpu")):
            file.seek(0)
            loaded = torch.load(file, map_location=where)["x"]
            assert str(loaded.device) == device and loaded.tolist() == [0, 1, 2, 3]
        """,
        NAME,
    )


@pytest.mark.slow
def test_as_cuda_comes_before_torch(run_python: PythonRunner) -> None:
    run_python(
        """
        import torch_loom.as_cuda
        import sys
        assert "torch" not in sys.modules
        import torch
        import torch_loom.as_cuda
        assert torch.ones(1, device="cuda").is_cuda and torch.loom.device_count() == torch.cuda.device_count()
        """
    )
    done = run_python("import torch, torch_loom.as_cuda", check=False)
    assert "AlreadyInitializedError" in done.stderr
    assert "before `import torch`" in done.stderr


@pytest.mark.slow
def test_nothing_of_cuda_is_touched_without_the_name(warm_python: PythonRunner) -> None:
    warm_python(
        """
        import torch
        assert not torch.cuda.is_available() and "torch_loom" not in torch.cuda.memory_allocated.__module__
        assert torch.cuda.device_count() == 0
        assert torch.UntypedStorage.__new__ is torch._C.StorageBase.__new__
        assert "aten::add.Tensor" not in torch._C._dispatch_get_registrations_for_dispatch_key("CUDA")
        """
    )


LAUNCHES = [["{file}"], ["-m", "{module}"], ["--", sys.executable, "{file}"], ["-c", "import program"]]


@pytest.mark.slow
@pytest.mark.parametrize("launch", LAUNCHES)
def test_loom_run(tmp_path: Path, launch: list[str]) -> None:
    file = tmp_path / "program.py"
    file.write_text(
        "import sys, torch\n"
        "x = torch.ones(3, device='cuda')\n"
        "print(x.device, torch.cuda.device_count(), torch.cuda.get_device_name(), sys.argv[1:])\n"
    )
    command = [part.format(file=file, module="program") for part in launch]
    options = ["--chip", "atom", "--devices", "3", "--launch", "chaos"]
    done = subprocess.run(
        [sys.executable, "-m", "torch_loom.tools.cli", "run", *options, *command, "--chip", "theirs"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "cuda:0 3 atom ['--chip', 'theirs']" in done.stdout


def test_no_devices_is_said_in_torch_cudas_words(fork_python: PythonRunner) -> None:
    fork_python(
        """
        import torch_loom
        assert not torch.cuda.is_available() and torch.cuda.device_count() == 0
        for use in (lambda: torch.ones(2, device="cuda"), lambda: torch.ones(2).cuda(), torch.cuda.init):
            raises("RuntimeError", "No CUDA GPUs are available: TORCH_LOOM_DEVICES='0'", use)
        """,
        {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_DEVICES": "0"},
    )


def test_loom_run_refuses_bad_values(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "torch_loom.tools.cli", "run", "--devices", "many", "x.py"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode != 0
    assert "TORCH_LOOM_DEVICES='many'" in done.stderr


@pytest.mark.slow
def test_no_triton_and_no_variable_for_children(run_python: PythonRunner) -> None:
    run_python(
        """
        import os
        given = set(os.environ)
        import torch
        import torch._inductor.config as settings
        assert settings.triton_disable_device_detection
        # Of Inductor's variables PyTorch itself sets some, such as that of its cache.
        assert "TORCHINDUCTOR_TRITON_DISABLE_DEVICE_DETECTION" not in set(os.environ) - given
        assert torch.cuda.amp.autocast.__module__ == "torch.cuda.amp.autocast_mode"  # which warns
        """,
        NAME,
    )
