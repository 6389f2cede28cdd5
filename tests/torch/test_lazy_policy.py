"""The lazy policy, which holds for a whole process, in processes of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import PythonRunner
from tests.suite import run_suite

LAZY = {"TORCH_LOOM_MEMORY_POLICY": "lazy"}

# Prints a digest of everything that a small training run computes.
_TRAINING = """
import hashlib
import torch
from torch import nn

torch.manual_seed(7)
model = nn.Sequential(
    nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2), nn.Linear(144, 10)
)
state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
model = model.to("loom")
nn.init.normal_(model[0].weight)
head = nn.Linear(10, 10, device="loom")
optimizer = torch.optim.AdamW([*model.parameters(), *head.parameters()], lr=1e-2)
images = torch.randn(32, 1, 8, 8, device="loom")
labels = torch.randint(0, 10, (32,), device="loom")
digest = hashlib.sha256()

def see(tensor):
    digest.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())

for step in range(6):
    noise = torch.empty_like(images).uniform_(-0.1, 0.1)
    rows = torch.randperm(32, device="loom")
    loss = nn.functional.cross_entropy(head(model(images[rows] + noise)), labels[rows])
    optimizer.zero_grad(set_to_none=step % 2 == 0)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    see(loss)
model.load_state_dict(state)
coins = torch.bernoulli(torch.rand(99, device="loom"))
for tensor in [*model.state_dict().values(), *head.parameters(), coins]:
    see(tensor)
see(torch.loom.get_rng_state())
print(digest.hexdigest(), torch.loom.memory_stats()["lazy.materializations"])
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_host_side_and_moves(tmp_path: Path) -> None:
    assert run_suite(tmp_path, LAZY, "tests/torch/test_lazy.py", "tests/torch/test_lazy_moves.py") == set()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_all_other_tests_of_ops_and_devices(tmp_path: Path) -> None:
    # Filling on the host is no command of the device's, so there is no race, copy or wait to look at; and the
    # move of a tensor waits for the stream that made it, which these tests hold up. PyTorch's memory profile
    # takes a tensor that moves for two. What is never used takes no memory of a plan,
    # and makes no peak.
    eager_only = (
        "tests/device/test_busy.py",
        "tests/device/test_cuda_names.py::test_errors_are_caught_under_cudas_names",
        "tests/device/test_explain.py",
        "tests/device/test_graph_errors.py::test_memory_for_streams_that_are_not_captured",
        "tests/device/test_ipc.py::test_what_was_sent_is_kept_while_another_process_holds_it",
        "tests/device/test_like_cuda.py::test_a_profile_becomes_a_snapshot",
        "tests/device/test_memory_viz.py::test_host_allocator",
        "tests/device/test_pinned_ranges.py",
        "tests/device/test_pool_checkpoints.py",
        "tests/device/test_plan.py::test_libraries_take_a_workspace_for_each_thread_and_stream",
        "tests/device/test_plan.py::test_models_larger_than_this_machine_cost_nothing",
        "tests/device/test_profiler.py",
        "tests/device/test_sanitizer_classes.py",
        "tests/device/test_sync_debug.py",
        "tests/device/test_telemetry.py",
        "tests/device/test_sanitizer.py",
        "tests/device/test_sanitizer_races.py",
        "tests/torch/test_queued_ops.py",
        "tests/torch/test_inferred_outputs.py::test_the_first_call_on_a_busy_stream_does_not_wait",
        "tests/torch/test_simulated_clock.py::test_a_kernel_of_which_nobody_is_told_costs_the_same",
        "tests/torch/test_stream_failures.py",
        "tests/torch/test_copies.py::test_pinned_memory_is_kept_until_its_copy_has_finished",
        "tests/device/test_memory.py::test_private_pools",
    )
    left_out = [f"--deselect={name}" for name in eager_only]
    skipped = run_suite(
        tmp_path, LAZY, "tests/torch", "tests/device", "--ignore-glob=*/test_lazy*.py", *left_out
    )
    assert skipped == {"tests.device.test_memory_history"}, (
        "it expects memory to be taken where a tensor is made"
    )


@pytest.mark.slow
def test_a_training_run_has_the_same_bits_under_both_policies(warm_python: PythonRunner) -> None:
    lazy_digest, lazy_moves = warm_python(_TRAINING, LAZY).stdout.split()
    eager_digest, eager_moves = warm_python(_TRAINING).stdout.split()
    assert lazy_digest == eager_digest
    assert int(lazy_moves) > 0 == int(eager_moves)


def test_the_eager_policy_counts_nothing(fork_loom: PythonRunner) -> None:
    fork_loom(
        """
        import torch_loom
        x = torch.zeros(100, device="loom")
        assert torch.loom.memory_allocated() == 512
        assert {v for k, v in torch.loom.memory_stats().items() if k.startswith("lazy.")} == {0}
        """
    )


def test_a_driver_without_arithmetic_takes_no_host_memory(fork_loom: PythonRunner) -> None:
    fork_loom(
        """
        import torch_loom
        stats = lambda name: torch.loom.memory_stats()[name]
        x = torch.zeros(1 << 40, dtype=torch.uint8, device="loom").fill_(1)
        x.copy_(torch.ones(1, dtype=torch.uint8))
        y = torch.arange(10, device="loom")
        z = torch.randn(3, 4, device="loom")
        w = torch.ones(2, 2).to("loom", torch.float64)
        w.cpu(), z.to("cpu", torch.float16)
        raises("RuntimeError", "does not broadcast", lambda: w.copy_(torch.ones(3)))
        assert (y.shape, y.dtype, w.dtype) == ((10,), torch.int64, torch.float64)
        assert (stats("lazy.host_bytes"), stats("lazy.pending_tensors")) == (0, 4)
        assert torch.loom.memory_allocated() == 0
        raises("OutOfMemoryError", "memory", lambda: x + 1)
        assert (z @ z.t()).shape == (3, 3) and stats("lazy.pending_tensors") == 3
        assert torch.loom.memory_allocated() == 512
        """,
        {**LAZY, "TORCH_LOOM_DRIVER": "null"},
    )


@pytest.mark.slow
def test_a_forked_child_frees_what_waited(warm_python: PythonRunner) -> None:
    warm_python(
        """
        import os, torch
        x = torch.ones(1000, device="loom")
        y = torch.ones(1000, device="loom") + 1
        pid = os.fork()
        if pid == 0:
            del x, y
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert (x + y).sum().item() == 3000
        """,
        LAZY,
    )


@pytest.mark.slow
def test_the_vendors_device_is_lazy(warm_python: PythonRunner) -> None:
    program = """
        import torch
        x = torch.zeros(1024, device="rbln")
        print(torch.rbln.memory_allocated(), torch.rbln.memory_stats()["lazy.host_bytes"])
        x + 1
        print(torch.rbln.memory_allocated())
        """
    name = {"TORCH_LOOM_DEVICE_NAME": "rbln"}
    assert warm_python(program, name).stdout.split() == ["0", "4096", "4096"]
    assert warm_python(program, {**name, "TORCH_RBLN_EAGER_MALLOC": "1"}).stdout.split() == [
        "4096",
        "0",
        "4096",
    ]


def test_the_end_of_a_dry_run_takes_no_memory_for_what_waits(fork_loom: PythonRunner) -> None:
    fork_loom(
        """
        import torch_loom
        from torch import nn

        with torch.loom.dry_run(chip="h200", devices=1, memory="64MiB") as plan:
            model = nn.Sequential(*(nn.Linear(2048, 2048, device="loom") for _ in range(8)))
            raises("OutOfMemoryError", "64.00 MiB", lambda: model(torch.ones(8, 2048, device="loom")))
            peak = torch.loom.max_memory_allocated()
        assert plan.peak_memory_bytes() == peak
        assert torch.loom.memory_allocated() == 0
        x = torch.ones(64, 64, device="loom")
        y = x @ x
        assert torch.loom.memory_allocated() == 2 * 64 * 64 * 4, "no library of a plan's chip has a workspace"
        """,
        LAZY,
    )
