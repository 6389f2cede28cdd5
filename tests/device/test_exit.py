"""A process that used a device ends quietly."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("attempt", [0, *(pytest.param(i, marks=pytest.mark.slow) for i in (1, 2))])
def test_a_script_may_end_right_after_backward(run_python, warm_python, attempt):
    """The engine's device thread still frees its task then; asking for the GIL too late would abort."""
    run = warm_python if attempt else run_python
    done = run(
        "import torch\nx = torch.ones(2, device='loom', requires_grad=True)\n(x * 2).sum().backward()\n"
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_a_pool_may_outlive_the_modules(run_python):
    """What `builtins` holds is freed when the interpreter has let go of everything else."""
    done = run_python(
        """
        import builtins
        import torch
        builtins.pool = torch.loom.MemPool()
        with torch.loom.use_mem_pool(builtins.pool):
            builtins.held = torch.ones(4, device="loom")
        """
    )
    assert (done.returncode, done.stderr) == (0, "")
