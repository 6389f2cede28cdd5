"""Fallbacks: what a chip does not do itself is counted, logged or warned of once, or refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from torch_loom.errors import FallbackError, LoomError

PROGRAMS = Path(__file__).parent / "programs" / "fallback"

ATOM = {"TORCH_LOOM_CHIP": "atom"}
EAGER_ATOM = {**ATOM, "TORCH_LOOM_MEMORY_POLICY": "eager"}


def test_errors_are_what_pytorch_raises() -> None:
    assert issubclass(FallbackError, NotImplementedError)
    assert issubclass(FallbackError, LoomError)


def test_nothing_falls_back_on_the_default_chip() -> None:
    torch.loom.reset_fallback_stats()
    x = torch.randn(4, 4, device="loom", requires_grad=True)
    torch.linalg.svdvals(x).sum().backward()
    (x.detach() > 0).nonzero()
    assert torch.loom.fallback_stats() == {}


def test_a_dtype_that_the_default_chip_has_not(fork_loom) -> None:
    fork_loom(PROGRAMS / "a_dtype_that_the_default_chip_has_not.py")


@pytest.mark.parametrize("env", [ATOM, EAGER_ATOM])
def test_ops_are_counted_and_logged_once(fork_loom, env) -> None:
    fork_loom(PROGRAMS / "ops_are_counted_and_logged_once.py", env)


def test_dtypes_are_counted_and_logged_once(fork_loom) -> None:
    fork_loom(PROGRAMS / "dtypes_are_counted_and_logged_once.py", ATOM)


def test_random_numbers_count_where_they_are_made(fork_loom) -> None:
    fork_loom(PROGRAMS / "random_numbers_count_where_they_are_made.py", ATOM)
    fork_loom(PROGRAMS / "random_numbers_count_where_they_are_made.py", EAGER_ATOM)


def test_side_streams_backward_threads_and_graphs(fork_loom) -> None:
    fork_loom(PROGRAMS / "side_streams_backward_threads_and_graphs.py", EAGER_ATOM)


def test_warn(fork_loom) -> None:
    fork_loom(PROGRAMS / "warn.py", {**ATOM, "TORCH_LOOM_FALLBACK": "warn"})


def test_error(fork_loom) -> None:
    fork_loom(PROGRAMS / "error.py", {**ATOM, "TORCH_LOOM_FALLBACK": "error"})


def test_a_warning_as_an_error_stops_the_op(fork_loom) -> None:
    fork_loom(PROGRAMS / "a_warning_as_an_error_stops_the_op.py", {**ATOM, "TORCH_LOOM_FALLBACK": "warn"})


def test_under_the_name_rbln(fork_python) -> None:
    done = fork_python(
        PROGRAMS / "under_the_name_rbln.py",
        {"TORCH_LOOM_DEVICE_NAME": "rbln", "TORCH_RBLN_LOG_LEVEL": "INFO"},
    )
    lines = done.stderr.splitlines()
    assert lines[0] == "[TORCH-RBLN][INFO] `aten::exp` op ran on CPU instead of RBLN"
    assert sum("`aten::exp`" in line for line in lines) == 1
    assert any("under_the_name_rbln.py" in line for line in lines)


@pytest.mark.long
def test_rbln_refuses_what_its_variable_names(fork_python) -> None:
    name = {"TORCH_LOOM_DEVICE_NAME": "rbln"}
    fork_python(
        PROGRAMS / "rbln_refuses_what_its_variable_names.py",
        {**name, "TORCH_RBLN_DISABLE_FALLBACK": "compile_error, unsupported_op"},
    )
    plain = PROGRAMS / "under_the_name_rbln_once.py"
    fork_python(plain, {**name, "TORCH_RBLN_DISABLE_FALLBACK": "compile_error"})
    fork_python(plain, {**name, "TORCH_RBLN_DISABLE_FALLBACK": "all", "TORCH_LOOM_FALLBACK": "allow"})
    bad = fork_python(plain, {**name, "TORCH_RBLN_DISABLE_FALLBACK": "everything"}, check=False)
    assert "TORCH_RBLN_DISABLE_FALLBACK='everything': no such word: 'everything'" in bad.stderr


@pytest.mark.long
def test_level_of_the_log(fork_loom) -> None:
    shown = fork_loom(PROGRAMS / "level_of_the_log.py", {**ATOM, "TORCH_LOOM_LOG_LEVEL": "INFO"})
    assert shown.stderr.startswith("[TORCH-LOOM][INFO] `aten::exp` op ran on CPU instead of LOOM\n")
    assert (
        fork_loom(PROGRAMS / "level_of_the_log.py", {**ATOM, "TORCH_LOOM_LOG_LEVEL": "WARNING"}).stderr == ""
    )
    assert fork_loom(PROGRAMS / "level_of_the_log.py", ATOM).stderr == ""


def test_a_chip_that_lists_an_unknown_op(fork_loom, tmp_path: Path) -> None:
    text = (Path(torch.loom.__file__).parents[1] / "chips" / "atom.toml").read_text()
    chip = tmp_path / "own.toml"
    chip.write_text(text.replace('"abs"', '"abz"'))
    program = PROGRAMS / "a_chip_that_lists_an_unknown_op.py"
    fork_loom(program, {"TORCH_LOOM_CHIP": str(chip)}, given="abz")
    chip.write_text(text.replace('"max.default"', '"max.nothing"'))
    fork_loom(program, {"TORCH_LOOM_CHIP": str(chip)}, given="max.nothing")
