"""pytest's options --loom…, each on a small project in a process of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parent / "programs" / "pytest_plugin"
SUITE = "test_suite.py"


@pytest.fixture(autouse=True)
def _in_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A folder of its own: the conftest.py of these tests is not the project's.
    (tmp_path / SUITE).write_text((PROGRAMS / "suite.py").read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.chdir(tmp_path)


def run(*arguments: object, start: tuple[object, ...] = ("-m", "pytest")) -> tuple[int, str]:
    """Return the exit status of pytest, and what it printed."""
    env = {
        name: value for name, value in os.environ.items() if not name.startswith(("TORCH_LOOM_", "PYTEST_"))
    }
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(PROGRAMS)])
    line = [sys.executable, *start, "-q", "-p", "no:cacheprovider", "-o", "addopts=", *arguments]
    done = subprocess.run(list(map(str, line)), env=env, capture_output=True, text=True, timeout=100)
    return done.returncode, done.stdout + done.stderr


def outcomes(printed: str) -> dict[str, int]:
    """Return how many tests passed, failed, …, from pytest's last line."""
    last = printed.rstrip().splitlines()[-1]
    return {name: int(count) for count, name in re.findall(r"(\d+) (passed|failed|skipped|errors?)", last)}


@pytest.mark.long
def test_leaks_of_a_project_are_found_and_its_budgets_written() -> None:
    budgets = Path("budgets.json")
    status, printed = run(SUITE, "--loom-leaks", "--loom-budget", budgets, "-k", "not wait")
    assert (status, outcomes(printed)) == (1, {"passed": 5, "skipped": 1, "error": 1}), printed
    assert "4194304 bytes of device memory in 1 tensor(s) are left that the test took" in printed
    assert f"{Path(SUITE).absolute()}:{line_of('kept.append')} test_keeps" in printed
    assert "torch-loom: 4 tests ran that would be skipped without a GPU" in printed
    found = json.loads(budgets.read_text())["tests"]
    assert found[f"{SUITE}::test_keeps"]["peak_bytes"] == 4 << 20
    assert found[f"{SUITE}::test_product"]["seconds"] > 0


@pytest.mark.long
def test_what_fixtures_give_is_no_leak() -> None:
    text = (PROGRAMS / "fixtures_with_tensors.py").read_text(encoding="utf-8")
    Path("test_fixtures.py").write_text(text, encoding="utf-8")
    status, printed = run("test_fixtures.py", "--loom-leaks")
    assert (status, outcomes(printed)) == (1, {"passed": 3, "error": 1}), printed
    assert "ERROR at teardown of test_keeps_what_a_fixture_made" in printed
    assert "20000 bytes of device memory in 1 tensor(s) are left" in printed


@pytest.mark.long
def test_those_are_counted_that_a_missing_gpu_skips() -> None:
    """A reason that speaks of a GPU is not enough, and a skip in a test or a fixture counts."""
    Path("test_skips.py").write_text((PROGRAMS / "skips.py").read_text(encoding="utf-8"), encoding="utf-8")
    status, printed = run("test_skips.py", "--loom")
    assert (status, outcomes(printed)) == (0, {"passed": 11}), printed
    assert "torch-loom: 7 tests ran that would be skipped without a GPU" in printed
    status, printed = run("test_skips.py", "--loom", "-k", "not counted")
    assert (status, outcomes(printed)) == (0, {"passed": 4}), printed
    assert "would be skipped" not in printed


@pytest.mark.slow
def test_a_seed_repeats_an_order() -> None:
    chosen = (SUITE, "-k", "does_not_wait")
    status, printed = run(*chosen, "--loom-chaos", 8)
    seed = re.search(r"--loom-chaos-seed (\d+) '[^']*test_does_not_wait'", printed)
    assert status == 1
    assert seed is not None
    wrong = re.search(r"assert [\d.]+ == 40000", printed)
    assert wrong is not None
    status, printed = run(*chosen, "--loom-chaos-seed", seed[1])
    assert (status, wrong[0] in printed) == (1, True), printed


@pytest.mark.slow
def test_a_test_that_fails_is_not_said_to_leak() -> None:
    status, printed = run(SUITE, "-k", "does_not_wait", "--loom-leaks", "--loom-chaos", 8)
    assert (status, outcomes(printed)) == (1, {"failed": 1}), printed


def line_of(text: str) -> int:
    return next(i for i, line in enumerate(Path(SUITE).read_text().splitlines(), 1) if text in line)


@pytest.mark.slow
def test_without_an_option_nothing_changes() -> None:
    status, printed = run(SUITE, "-k", "not device and not Without")
    assert (status, outcomes(printed)) == (0, {"skipped": 5}), printed
    assert "torch-loom" not in printed


@pytest.mark.slow
def test_options_set_the_devices() -> None:
    status, printed = run(
        "--loom-devices", 3, "--loom-memory", "2GiB", "--loom", SUITE, "-k", "device", "-s", "-v"
    )
    assert status == 0, printed
    assert f"3 x {2 << 30}" in printed
    assert "torch-loom: 3 virtual devices, named cuda; chip h200; launch auto" in printed


@pytest.mark.slow
def test_workers_of_xdist_have_the_devices_and_the_checks() -> None:
    budgets = Path("budgets.json")
    chosen = ("-n", 2, "--loom-leaks", "--loom-budget", budgets, "-k", "not wait")
    status, printed = run(SUITE, *chosen)
    assert (status, outcomes(printed)) == (1, {"passed": 5, "skipped": 1, "error": 1}), printed
    assert "torch-loom: 4 tests ran" in printed
    assert len(json.loads(budgets.read_text())["tests"]) == 5


@pytest.mark.slow
def test_a_budget_that_is_missed_fails_the_session() -> None:
    budgets = Path("budgets.json")
    chosen = (SUITE, "-k", "product or keeps", "--loom-budget", budgets)
    assert run(*chosen)[0] == 0
    first = budgets.read_text()
    tests = json.loads(first)["tests"]
    tests[f"{SUITE}::test_keeps"]["peak_bytes"] //= 2
    tests[f"{SUITE}::test_product"]["seconds"] *= 2
    budgets.write_text(json.dumps({"tests": tests}))
    status, printed = run(*chosen)
    assert status == 1
    assert "1 over budget by more than 2%, 1 changed otherwise, 0 as before" in printed
    assert re.search(r"OVER .* 2097152 → 4194304 bytes\s+test_suite.py::test_keeps", printed)
    assert json.loads(budgets.read_text())["tests"] == tests


@pytest.mark.slow
def test_a_budget_that_is_met_stays_and_one_that_is_not_can_be_accepted() -> None:
    chosen = (SUITE, "-k", "product", "--loom-budget", "budgets.json")
    cost = {"seconds": 1e-9, "peak_bytes": 1}
    Path("budgets.json").write_text(json.dumps({"tests": {f"{SUITE}::test_product": cost}}))
    assert run(*chosen, "--loom-budget-update")[0] == 0
    accepted = Path("budgets.json").read_text()
    assert json.loads(accepted)["tests"][f"{SUITE}::test_product"] != cost
    status, printed = run(*chosen, "--loom-budget-tolerance", 0)
    assert (status, Path("budgets.json").read_text()) == (0, accepted)
    assert "0 over budget by more than 0%, 0 changed otherwise, 1 as before, 0 without a budget" in printed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--loom-chip", "h1000"), "There is no chip 'h1000'"),
        (("--loom-memory", "much"), "TORCH_LOOM_MEMORY"),
        (("--loom-devices", "-1"), "TORCH_LOOM_DEVICES"),
        (("--loom-chaos", 0), "--loom-chaos 0: the number of orders is 1 to 10000"),
        (("--loom-chaos-seed", -1), "a seed is 0 to 2^64 - 1"),
        (("--loom-chaos", 2, "--loom-chaos-seed", 1), "exclude each other"),
        (("--loom-budget", SUITE), "not a file that this option writes"),
        (("--loom-budget", "."), "not a place for a file of budgets"),
        (("--loom-budget", "nowhere/budgets.json"), "not a place for a file of budgets"),
        (("--loom-chip=",), "TORCH_LOOM_CHIP='': neither a name nor a path"),
        (("--loom-memory=",), "TORCH_LOOM_MEMORY='': not a size in bytes"),
        (("--loom-budget-update",), "need --loom-budget FILE"),
        (("--loom-budget", "x.json", "--loom-budget-tolerance", -1), "the share is a number from 0"),
        (("--loom=foo",), "ignored explicit argument 'foo'"),
    ],
    ids=str,
)
def test_bad_options_are_errors_of_usage(options: tuple[object, ...], words: str) -> None:
    status, printed = run(SUITE, *options)
    assert (status, words in printed) == (pytest.ExitCode.USAGE_ERROR, True), printed


@pytest.mark.slow
def test_a_plugin_may_have_imported_torch() -> None:
    status, printed = run("-p", "imports_torch", "--loom", SUITE, "-k", "product")
    assert (status, outcomes(printed)) == (0, {"passed": 1}), printed
    assert "a plugin of pytest has imported torch; starting again with cuda devices" in printed


@pytest.mark.slow
def test_a_program_that_has_imported_torch_is_told() -> None:
    status, printed = run(SUITE, start=(PROGRAMS / "runs_pytest.py",))
    assert status == pytest.ExitCode.USAGE_ERROR
    assert "torch was imported before, so that cuda devices cannot be torch-loom's any more" in printed
