"""Arguments of PyBuda's functions: another value than they take is named, with what they take."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

from torch_loom import pybuda
from torch_loom.errors import PyBudaError


def _compile(**given: Any) -> Any:
    device = pybuda.TTDevice("tt0", module=pybuda.PyTorchModule("linear", torch.nn.Linear(4, 4)))
    return pybuda.pybuda_compile(device, given.pop("graph_name", "graph"), torch.ones(1, 4), **given)


@pytest.mark.parametrize("function", [pybuda.run_inference, pybuda.run_forward, pybuda.run_backward])
@pytest.mark.parametrize("count", ["x", -1, 1.5, None, True])
def test_a_count_that_is_none_is_named(function: Callable[..., Any], count: Any) -> None:
    with pytest.raises(PyBudaError, match=rf"input_count is {count!r}; .* 0 \(no end\) or more"):
        function(input_count=count)


@pytest.mark.parametrize("name", ["epochs", "steps", "accumulation_steps", "microbatch_count"])
@pytest.mark.parametrize("count", ["x", 0, 2.0])
def test_training_takes_counts_of_one_or_more(name: str, count: Any) -> None:
    with pytest.raises(PyBudaError, match=rf"run_training: {name} is {count!r}; .* 1 or more"):
        pybuda.run_training(**{name: count})


@pytest.mark.parametrize(
    ("function", "name", "value"),
    [
        (pybuda.run_training, "checkpoint_interval", "x"),
        (lambda **given: pybuda.initialize_pipeline(True, **given), "microbatch_count", "x"),
        (lambda **given: pybuda.run_generate(**{"write_index": 0, **given}), "input_count", "x"),
        (pybuda.run_generate, "write_index", "x"),
        (pybuda.run_inference, "inputs", torch.ones(2, 2)),
        (_compile, "microbatch_size", "x"),
        (_compile, "microbatch_count", 0),
        (lambda **given: pybuda.TTDevice("tt0", **given), "num_chips", "x"),
        *(
            (lambda **given: pybuda.TTDevice("tt0", **given), "chip_ids", wrong)
            for wrong in ("0", [0, 0], [True], [()], [(0, 1)], [-1], 3)
        ),
    ],
)
def test_other_arguments_are_named(function: Callable[..., Any], name: str, value: Any) -> None:
    with pytest.raises(PyBudaError, match=f"{name} is "):
        function(**{name: value})


NO_NUMBERS = ["x", math.nan, math.inf, -0.1, None, True]


@pytest.mark.parametrize("value", NO_NUMBERS)
def test_optimizers_take_finite_numbers(value: Any) -> None:
    with pytest.raises(PyBudaError, match=f"learning_rate is {value!r}; it is a finite number"):
        pybuda.optimizers.SGD(learning_rate=value, device_params=True)


@pytest.mark.parametrize("value", [*NO_NUMBERS, 1.0])
def test_optimizers_take_shares_below_one(value: Any) -> None:
    with pytest.raises(PyBudaError, match=f"beta1 is {value!r}; .* below 1.0"):
        pybuda.optimizers.Adam(0.1, beta1=value, device_params=True)


def test_numbers_of_numpy_are_numbers() -> None:
    optimizer = pybuda.optimizers.SGD(learning_rate=numpy.float32(0.5), device_params=True)
    assert optimizer.learning_rate == 0.5
    device = pybuda.TTDevice("tt0", module=pybuda.PyTorchModule("linear", torch.nn.Linear(4, 4)))
    device.push_to_inputs(torch.ones(1, 4))
    assert len(pybuda.run_inference(input_count=numpy.int64(1), _sequential=True).get(timeout=60)) == 1


@pytest.mark.parametrize("name", ["../out", "/out", "a/b", "..", ".", "", "a\0b", "a\\b", 3])
def test_names_are_no_paths(name: Any, tmp_path: Path) -> None:
    for made in (pybuda.TTDevice, pybuda.CPUDevice, lambda one: _compile(graph_name=one)):
        with pytest.raises(PyBudaError, match="its name is a text that can name a file"):
            made(name)
