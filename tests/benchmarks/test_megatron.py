"""Plans of Megatron-LM's tests: what is read of their arguments, the order of passes, a case's memory."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from benchmarks.megatron import __main__ as megatron
from benchmarks.megatron import schedule
from benchmarks.megatron.__main__ import MIB, Figures, Result, main, planned, summary, with_hosts
from benchmarks.megatron.arguments import Arguments, UnplannedError, read
from benchmarks.megatron.schedule import order
from torch_loom import chips, config

# Of the case gpt3_mcore_te_tp1_pp1_resume_torch_dist_dist_optimizer of Megatron-LM's functional tests (commit
# d98e8a6, BSD-3-Clause), which reports a peak of 2,586.09 MiB and 526.55 MiB after a step on a DGX A100.
SMALL = {
    "num-layers": "12",
    "hidden-size": "512",
    "num-attention-heads": "8",
    "micro-batch-size": "4",
    "global-batch-size": "32",
    "seq-length": "1024",
    "max-position-embeddings": "1024",
    "transformer-impl": "transformer_engine",
    "tensor-model-parallel-size": "1",
    "pipeline-model-parallel-size": "1",
    "use-distributed-optimizer": "true",
    "bf16": "true",
}


def arguments(**changes: str) -> Arguments:
    return read(
        "gpt/case", "dgx_a100", {**SMALL, **{name.replace("_", "-"): v for name, v in changes.items()}}
    )


def most_in_flight(of: Arguments, stage: int) -> int:
    """The most passes that have gone forward and not backward."""
    now = most = 0
    for is_forward, _ in order(of, stage):
        now += 1 if is_forward else -1
        most = max(most, now)
    assert now == 0
    return most


def test_arguments_say_what_is_sharded() -> None:
    found = arguments(tensor_model_parallel_size="2", pipeline_model_parallel_size="2")
    assert (found.data, found.num_microbatches, found.chunk_layers) == (2, 4, ((6,), (6,)))
    assert found.vocabulary % 256 == 0


@pytest.mark.parametrize(
    ("case", "changes", "reason"),
    [
        ("hybrid/case", {}, "family hybrid"),
        ("gpt/case_release", {}, "nodes"),
        ("gpt/case", {"num-experts": "8"}, "experts"),
        ("gpt/case", {"tensor-model-parallel-size": "16"}, "more than 8 ranks"),
        ("gpt/case", {"pipeline-model-parallel-size": "8"}, "12 layers over 8 stages"),
    ],
)
def test_what_is_not_built_is_refused_with_its_reason(
    case: str, changes: dict[str, str], reason: str
) -> None:
    with pytest.raises(UnplannedError, match=reason):
        read(case, "dgx_a100", {**SMALL, **changes})


def test_earlier_stages_have_more_in_flight() -> None:
    plain = arguments(pipeline_model_parallel_size="4")
    assert [most_in_flight(plain, stage) for stage in range(4)] == [4, 3, 2, 1]


def test_chunks_of_the_last_stage_wait_for_the_last_of_them() -> None:
    chunks = {"pipeline_model_parallel_size": "4", "num_layers_per_virtual_pipeline_stage": "1"}
    # Two of three chunks of four micro-batches, and the first that has gone through.
    assert most_in_flight(arguments(**chunks), 3) == 9
    group = {"global_batch_size": "40", "microbatch_group_size_per_virtual_pipeline_stage": "5"}
    assert most_in_flight(arguments(**chunks, **group), 3) == 11


@pytest.mark.slow
def test_memory_is_what_was_reported() -> None:
    found = planned(arguments(), "dgx-a100", only_last=True)
    assert found.peak is not None
    assert found.allocated is not None
    assert found.peak / MIB == pytest.approx(2586.09, rel=0.005)
    assert found.allocated / MIB == pytest.approx(526.55, rel=0.005)


def test_the_host_is_found_from_half_of_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    usual_us = chips.load("a100").host_issue_ns / 1e3

    def plan(of: Arguments, topology: str, only_last: bool) -> Figures:
        issue_us = config.host_issue_us() or usual_us
        return Figures(1.0, 1.0, 1e-3 * of.hidden * issue_us / usual_us + 0.1)

    monkeypatch.setattr(megatron, "planned", plan)
    results = []
    for hidden in range(512, 1536, 64):
        of = arguments(hidden_size=str(hidden))
        measured = Figures(1.0, 1.0, 2.5e-3 * hidden + 0.3)
        results.append(Result("gpt/case", "dgx-a100", of, measured, plan(of, "dgx-a100", True)))
    assert {each.is_fitted for each in results} == {True, False}
    again, lines = with_hosts(results, only_last=True)
    assert [each.errors()[3] for each in again] == pytest.approx([0.0] * len(again), abs=1e-6)
    assert f"{2.5 * usual_us:.0f} us a command and 200 ms a step beside them" in lines[0]
    assert config.host_issue_us() is None
    found = "\n".join(summary(again, Counter()))
    assert "found, not fitted: mean error 0.0%" in found


def test_messages_of_one_chunk_go_out_with_those_that_come_in(monkeypatch: pytest.MonkeyPatch) -> None:
    batches: list[list[str]] = []
    monkeypatch.setattr(
        schedule.dist,
        "batch_isend_irecv",
        lambda ops: (
            batches.append(["send" if op.op is schedule.dist.isend else "receive" for op in ops]) or []
        ),
    )
    monkeypatch.setattr(schedule.dist, "P2POp", lambda op, x, peer, group: SimpleNamespace(op=op))
    messages = object.__new__(schedule.Messages)
    messages.is_batched, messages.ways, messages._kept = True, [None, None], None
    messages.next, messages.previous, messages.shape = 2, 0, (1,)
    messages.shared = SimpleNamespace(arguments=SimpleNamespace(dtype=torch.float32), device="loom")
    x = torch.zeros(1)
    for is_forward, sends, comes in (
        (True, True, True),  # it fills the stage: hidden states come, and go
        (True, True, True),
        (False, True, True),  # now gradients come while hidden states go
        (True, False, False),
    ):
        messages.receive(0 if is_forward else 1, comes)
        if sends:
            messages.send(x, 0 if is_forward else 1)
    messages.flush()
    assert batches == [["receive"], ["send"], ["receive"], ["send", "receive"], ["send"]]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ([], "must be an object with a list under 'rows'"),
        ({"rows": [{"case": "gpt/case"}]}, "row 0: must be an object with 'args'"),
        ({"rows": [{"case": "gpt/case", "hw": "dgx_a100", "args": {}, "peak_bytes": "5"}]}, "'peak_bytes'"),
    ],
)
def test_another_file_is_refused(
    content: object, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rows.json"
    path.write_text(json.dumps(content))
    assert main([str(path)]) == 2
    assert said in capsys.readouterr().err
