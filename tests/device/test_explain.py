"""torch.loom.explain: planted examples are found at their line, and their repaired twins are not."""

from __future__ import annotations

import inspect
import json
import threading
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.device.planted_findings import PLANTED, TWINS, cpu_and_back
from torch_loom.device._explain.findings import KINDS, Finding
from torch_loom.device._explain.report import Report

PROGRAMS = Path(__file__).parent / "programs" / "explain"

DEVICE = "loom"


def _batch(*size: int) -> torch.Tensor:
    return torch.randn(*size, device=DEVICE)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def _kinds(report: Report) -> set[str]:
    return {finding.kind for finding in report.findings}


@pytest.mark.parametrize(("kind", "program", "op"), PLANTED, ids=lambda value: getattr(value, "__name__", ""))
def test_planted(kind: str, program: Callable[[torch.Tensor], object], op: str) -> None:
    x = _batch(8, 8)
    report = torch.loom.explain(program, x)
    lines, start = inspect.getsourcelines(program)
    line = start + next(i for i, text in enumerate(lines) if text.rstrip().endswith("# here"))
    found = [f for f in report.findings if f.kind == kind and (not op or f.op == op)]
    assert found, report.findings
    assert (inspect.getsourcefile(program), line, program.__name__) in {
        (f.stack[-1].filename, f.stack[-1].lineno, f.stack[-1].name) for f in found
    }
    assert report.verdict.startswith(f"{len(report.findings)} finding")
    assert (
        f"{KINDS[kind][0].split()[0]}" in report.verdict or f"{KINDS[kind][1].split()[0]}" in report.verdict
    )


@pytest.mark.parametrize("program", TWINS, ids=lambda program: program.__name__)
def test_repaired(program: Callable[[torch.Tensor], object]) -> None:
    x = _batch(8, 8)
    report = torch.loom.explain(program, x)
    assert report.findings == [], str(report)
    assert report.verdict.startswith("clean: ")


def _train(steps: int, optimizer: type[torch.optim.Optimizer]) -> Report:
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3),
        torch.nn.BatchNorm2d(4),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(144, 4),
    ).to(DEVICE)
    update = optimizer(model.parameters(), lr=0.01)
    images, labels = _batch(16, 1, 8, 8), torch.randint(0, 4, (16,), device=DEVICE)
    with torch.loom.explain() as report:
        for _ in range(steps):
            update.zero_grad()
            torch.nn.functional.cross_entropy(model(images), labels).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            update.step()
    return report


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_a_plain_training_loop_is_clean(optimizer: type[torch.optim.Optimizer]) -> None:
    report = _train(3, optimizer)
    assert report.findings == [], str(report)
    assert report.verdict == f"clean: {report.num_ops} ops, nothing that was not asked for"
    assert report.num_ops > 60


def test_the_same_place_is_one_finding() -> None:
    x = _batch(4)
    with torch.loom.explain() as report:
        for _ in range(5):
            x[0].item()
    (finding,) = report.findings
    assert (finding.kind, finding.op, finding.count, finding.bytes) == ("implicit_sync", "aten::item", 5, 20)
    assert finding.stack[-1].line == "x[0].item()"
    assert finding.stack[-1].name == "test_the_same_place_is_one_finding"
    assert len(finding.stack) == 1  # from where explain was called
    assert report.verdict == "1 finding: 5 implicit synchronisations (20 bytes)"


def test_round_trips_say_where_the_data_left() -> None:
    report = torch.loom.explain(cpu_and_back, _batch(8, 8))
    finding = report.findings[0]
    assert (finding.kind, finding.count, finding.bytes) == ("host_round_trip", 1, 256)
    assert finding.origin[-1].line == "host = x.cpu()"


def test_memory_that_comes_back_is_no_round_trip() -> None:
    x = _batch(1024)
    with torch.loom.explain() as report:
        for step in range(8):
            x.cpu()  # freed: the next tensor may get its address
            torch.arange(1024, dtype=torch.float32).add_(step).to(DEVICE)
    assert _kinds(report) == {"implicit_sync"}


def test_a_report_ends_with_its_last_reference() -> None:
    report = torch.loom.explain(torch.ones, 3, device=DEVICE)
    gone = weakref.ref(report)
    del report
    assert gone() is None


def test_result_arguments_and_errors() -> None:
    x = _batch(4)
    report = torch.loom.explain(torch.add, x, x, alpha=2)
    assert torch.equal(report.result.cpu(), (3 * x).cpu())

    def fails(value: torch.Tensor) -> None:
        value.item()

    with pytest.raises(RuntimeError, match="cannot be converted to Scalar"):
        torch.loom.explain(fails, x)
    with pytest.raises(TypeError, match="only with a function"):
        torch.loom.explain(alpha=2)
    report = torch.loom.explain()
    with report:
        pass
    assert report.verdict == "clean: 0 ops, nothing that was not asked for"
    with pytest.raises(RuntimeError, match="entered once"), report:
        pass


def test_nested_reports_see_everything() -> None:
    x = _batch(4)
    with torch.loom.explain() as outer:
        x[0].item()
        with torch.loom.explain() as inner:
            x[1].item()
        x[2].item()
    x[3].item()
    assert sum(f.count for f in inner.findings) == 1
    assert sum(f.count for f in outer.findings) == 3


def test_all_threads_are_seen() -> None:
    x = _batch(4)

    def work() -> None:
        for _ in range(10):
            x[0].item()

    with torch.loom.explain() as report:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sum(f.count for f in report.findings) == 40
    assert {f.stack[-1].name for f in report.findings} == {"work"}


def test_the_engines_threads() -> None:
    leaf = _batch(8, 8).requires_grad_()
    torch.autograd.set_multithreading_enabled(True)
    try:
        with torch.loom.explain() as report:
            leaf.t().reshape(-1).sum().backward()
    finally:
        torch.autograd.set_multithreading_enabled(False)
    assert "noncontiguous_copy" in _kinds(report)


def test_side_streams_and_graphs() -> None:
    x = _batch(8, 8)
    side = torch.loom.Stream()
    side.wait_stream(torch.loom.current_stream())
    with torch.loom.explain() as report, torch.loom.stream(side):
        x.t().contiguous()
        side.synchronize()
    assert _kinds(report) == {"noncontiguous_copy"}

    graph = torch.loom.CUDAGraph() if hasattr(torch.loom, "CUDAGraph") else torch.loom.LoomGraph()
    with torch.loom.graph(graph):
        x * 2
    with torch.loom.explain() as report:
        graph.replay()
        torch.loom.synchronize()
    assert report.verdict == "clean: 1 op, nothing that was not asked for"


def test_texts() -> None:
    report = torch.loom.explain(cpu_and_back, _batch(8, 8))
    text = str(report)
    assert text.splitlines()[0] == report.verdict
    assert (
        report.verdict == "3 findings: 1 host round trip (256 bytes), 2 implicit synchronisations (512 bytes)"
    )
    assert "return host.to(DEVICE)  # here" in text
    assert f"{inspect.getsourcefile(cpu_and_back)}:" in text
    assert "\x1b" not in text  # no terminal here

    data = json.loads(report.to_json())
    assert data == report.to_dict()
    assert data["verdict"] == report.verdict
    assert data["findings"][0]["kind"] == "host_round_trip"
    assert data["findings"][0]["stack"][-1]["function"] == "cpu_and_back"
    assert data["findings"][0]["origin"][-1]["code"] == "host = x.cpu()"
    assert isinstance(report.findings[0], Finding)
    assert str(torch.loom.explain()) == "clean: 0 ops, nothing that was not asked for"


def test_nothing_stays_behind() -> None:
    x = _batch(4)
    with torch.loom.explain() as report:
        pass
    x[0].item()
    assert report.findings == []
    assert torch_is_quiet()


def torch_is_quiet() -> bool:
    from torch_loom import _C

    torch.ones(2, device=DEVICE)
    return _C.current_op()[0] == []


def test_fallbacks(fork_loom) -> None:
    fork_loom(PROGRAMS / "fallbacks.py", {"TORCH_LOOM_CHIP": "atom"})
