"""The tape: what it tells of a kernel, and that it is the same on every way a program can take."""

from __future__ import annotations

import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from tests.device.profiles import ON_DEVICE, of, trace
from tests.device.tape_programs import (
    PROGRAMS,
    Record,
    listening,
    operands,
    tell,
    what_is_told,
)
from torch_loom import _C

FOLDER = Path(__file__).parent / "programs" / "tape"

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import PythonRunner


def plain(records: object) -> Any:
    """As JSON has it: tuples are lists."""
    return json.loads(json.dumps(records))


@pytest.fixture(scope="module")
def told() -> dict[str, list[Record]]:
    return {name: plain(tell(program, operands())) for name, program in PROGRAMS.items()}


def only(records: list[Record]) -> Record:
    (record,) = records
    return record


def test_an_op_that_is_given_a_tensor_twice_has_two_inputs(told: dict[str, list[Record]]) -> None:
    matrix = [[6, 6], [6, 1], 4, False, "float32"]
    record = only(told["mm_self"])
    assert record["name"] == "aten::mm"
    assert record["inputs"] == [matrix, matrix]
    assert record["outputs"] == [[[6, 6], [6, 1], 4, True, "float32"]]
    assert only(told["add_self"])["inputs"] == [[[8, 6], [6, 1], 4, False, "float32"]] * 2


def test_attributes_that_decide_cost(told: dict[str, list[Record]]) -> None:
    conv = next(one for one in told["conv"] if "convolution" in one["name"])
    expected = {"stride": [2, 2], "padding": [1, 1], "dilation": [2, 2], "groups": 2, "transposed": False}
    assert {key: conv["attributes"][key] for key in expected} == expected
    assert [one[0] for one in conv["inputs"]] == [[2, 4, 9, 9], [6, 2, 3, 3], [6]]
    attention = only(told["attention"])["attributes"]
    assert attention["is_causal"] is True
    assert attention["dropout_p"] == 0.0
    total = only(told["sum"])["attributes"]
    assert (total["dim"], total["keepdim"]) == ([0, 2], True)
    assert only(told["add_scaled"])["attributes"]["alpha"] == 3
    mixed = only(told["addmm"])["attributes"]
    assert (mixed["alpha"], mixed["beta"]) == (2, 0.5)


def test_layouts_dtypes_and_outputs(told: dict[str, list[Record]]) -> None:
    assert only(told["interleaved"])["inputs"] == [[[8, 3], [6, 2], 4, False, "float32"]]
    assert [one[-1] for one in only(told["promoted"])["inputs"]] == ["bfloat16", "float32"]
    assert only(told["promoted"])["outputs"][0][-1] == "float32"
    values, indices = only(told["sort"])["outputs"]
    assert (values[-1], indices[-1]) == ("float32", "int64")
    # In place, and out=: what is written is an input and an output.
    for name in ("add_in_place", "mul_out"):
        record = only(told[name])
        written = [one for one in record["inputs"] if one[3]]
        assert written == record["outputs"]
        assert len(written) == 1
    # A foreach op returns nothing: it has written its first list.
    record = only(told["foreach"])
    assert [one[3] for one in record["inputs"]] == [True, True, False, False]
    assert len(record["outputs"]) == 2


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_side_stream_tells_the_same(name: str, told: dict[str, list[Record]]) -> None:
    assert plain(tell(PROGRAMS[name], operands(), torch.loom.Stream())) == told[name]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_capture_and_its_replays_tell_the_same(name: str, told: dict[str, list[Record]]) -> None:
    program, given = PROGRAMS[name], operands()
    graph, stream = torch.loom.CUDAGraph(), torch.loom.Stream()
    with torch.no_grad(), stream:
        program(given)
        stream.synchronize()
        with listening() as capture:
            graph.capture_begin()
            program(given)
            graph.capture_end()
    with listening() as replay:
        graph.replay()
        torch.loom.synchronize()
    assert plain(what_is_told(capture)) == plain(what_is_told(replay)) == told[name]
    assert all(record["is_captured"] for record in capture.records)
    assert not any(record["is_captured"] for record in replay.records)
    assert [record["addresses"] for record in replay.records] == [
        record["addresses"] for record in capture.records
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {"TORCH_LOOM_LAUNCH": "blocking"},
        {"TORCH_LOOM_LAUNCH": "chaos", "TORCH_LOOM_CHAOS_SEED": "7"},
        {"TORCH_LOOM_MEMORY_POLICY": "lazy"},
    ],
    ids=["blocking", "chaos", "lazy"],
)
def test_launch_modes_and_policies_tell_the_same(
    settings: dict[str, str], told: dict[str, list[Record]], warm_python: PythonRunner
) -> None:
    there = json.loads(warm_python(FOLDER / "launch_modes_and_policies_tell_the_same.py", settings).stdout)
    for name, records in told.items():
        assert there[name] == [records, records], name


@pytest.mark.slow
def test_a_dry_run_tells_the_same(told: dict[str, list[Record]], warm_python: PythonRunner) -> None:
    there = json.loads(
        warm_python(FOLDER / "a_dry_run_tells_the_same.py", {"TORCH_LOOM_DRIVER": "null"}).stdout
    )
    # The chip and not the driver decides which attention runs; that is a matter of its own.
    for name in told.keys() - {"attention"}:
        assert there[name] == [told[name], told[name]], name


@pytest.mark.slow
def test_a_first_call_tells_the_same(warm_python: PythonRunner) -> None:
    """The first call of an op moves its results from the host: no copy of the program's."""
    warm_python(FOLDER / "a_first_call_tells_the_same.py")


@pytest.mark.slow
def test_an_upload_under_the_lazy_policy_is_a_copy(warm_python: PythonRunner) -> None:
    warm_python(FOLDER / "an_upload_under_the_lazy_policy_is_a_copy.py", {"TORCH_LOOM_MEMORY_POLICY": "lazy"})


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_profile_has_the_kernels_that_the_tape_tells_of(name: str) -> None:
    program, given = PROGRAMS[name], operands()
    program(given)
    with torch.no_grad(), torch.profiler.profile(activities=[ON_DEVICE]) as profile, listening() as tape:
        program(given)
        torch.loom.synchronize()
    rows = sorted(row["name"] for row in of(trace(profile), "kernel"))
    expected = sorted(
        "loom::" + record["name"].partition("::")[2].partition(".")[0] for record in tape.records
    )
    assert rows == expected


@pytest.mark.slow
def test_the_driver_is_told_what_the_tape_tells(warm_python: PythonRunner) -> None:
    """Nothing reaches the driver past the tape, and nothing is told that does not reach it."""
    library = Path(__file__).parents[2] / "build/temp/libloom_logged.so"
    told = json.loads(
        warm_python(
            FOLDER / "the_driver_is_told_what_the_tape_tells.py", {"TORCH_LOOM_DRIVER": str(library)}
        ).stdout
    )
    assert told.keys() == PROGRAMS.keys()
    for name, streams in told.items():
        for tape, driver in streams:
            assert tape == driver, name
            assert any(kind == "kernel" for kind, _ in tape), name


def test_a_refused_kernel_ends_as_failed() -> None:
    x = torch.ones(4, device="loom")

    def refuse(kind: int, *rest: object) -> None:
        if kind == _C.TapeReader.KERNEL:
            raise KeyError("refused")

    with listening() as tape:
        reader = _C.TapeReader(refuse)
        reader.attach()
        try:
            with pytest.raises(KeyError, match="refused"):
                x.add_(1)
        finally:
            reader.detach()
    assert only(tape.records)["has_failed"] is True
    assert x.tolist() == [1.0] * 4


def test_a_kernel_that_throws_ends_as_failed() -> None:
    table, index = torch.ones(3, 2, device="loom"), torch.tensor([7], device="loom")
    with listening() as tape, pytest.raises(IndexError, match="out of range"):
        torch.nn.functional.embedding(index, table)
    record = only(tape.records)
    assert (record["name"], record["has_failed"]) == ("aten::embedding", True)


def test_what_an_end_raises_leaves_the_op() -> None:
    x = torch.ones(4, device="loom")

    def refuse(device: int, stream: int, name: str, *rest: object) -> None:
        raise KeyError(name)

    for stream in (torch.loom.default_stream(), torch.loom.Stream()):
        with stream:
            x.add_(1)
            stream.synchronize()
            reader = _C.TapeReader(lambda *launch: None, refuse)
            reader.attach()
            try:
                with pytest.raises(KeyError, match=r"aten::add_\.Tensor"):
                    x.add_(1)
            finally:
                reader.detach()
            stream.synchronize()
    assert x.tolist() == [5.0] * 4  # it had been submitted


def test_a_reader_may_detach_itself() -> None:
    x = torch.ones(4, device="loom").add_(1)  # in device memory under every policy: no upload is heard below
    heard = []

    def once(kind: int, *rest: object) -> None:
        heard.append(kind)
        reader.detach()

    reader = _C.TapeReader(once)
    reader.attach()
    x.add_(1)
    x.add_(1)
    assert heard == [_C.TapeReader.KERNEL]


def test_a_reader_detaches_itself_while_others_tell_it(request: pytest.FixtureRequest) -> None:
    """Who waited for Python's lock to tell it, when it went, tells it nothing any more."""
    num_threads, rounds = 3, 40
    start = threading.Barrier(num_threads, timeout=60)
    heard: list[int] = []
    readers: list[_C.TapeReader] = []

    def once(kind: int, *rest: object) -> None:
        heard.append(kind)
        sum(range(20_000))  # with Python's lock, for which the others come to wait
        readers[-1].detach()

    def issue() -> None:
        x = torch.ones(1000, device="loom").add_(1)  # has its memory under every policy
        for _ in range(rounds):
            if start.wait() == 0:
                heard.clear()
                readers.append(_C.TapeReader(once))
                readers[-1].attach()
            start.wait()
            for _ in range(5):
                torch.cosine_similarity(x, x, 0)  # several kernels without Python's lock
            start.wait()
            assert heard == [_C.TapeReader.KERNEL]

    def guarded() -> None:
        try:
            issue()
        except BaseException:
            start.abort()
            raise

    interval = sys.getswitchinterval()
    request.addfinalizer(lambda: sys.setswitchinterval(interval))
    sys.setswitchinterval(1.0)
    with ThreadPoolExecutor(num_threads) as threads:
        for done in [threads.submit(guarded) for _ in range(num_threads)]:
            done.result()


@pytest.mark.long
def test_readers_come_and_go_while_threads_issue() -> None:
    is_over = threading.Event()
    failures = []

    def guarded(work: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                while not is_over.is_set():
                    work()
            except BaseException as error:
                failures.append(error)

        return run

    def issue() -> None:
        x = torch.ones(4, device="loom")
        for _ in range(50):
            x = x + 1

    def listen() -> None:
        native = _C.KernelCounter()
        python = _C.TapeReader(lambda *launch: None, lambda *record: None)
        for reader in (native, python):
            reader.attach()
        for reader in (python, native):
            reader.detach()
        counts = native.counts()
        issue()
        # Nobody is told of anything any more.
        assert native.counts() == counts
        assert counts["begun"] >= counts["ended"] - 8

    threads = [threading.Thread(target=guarded(work)) for work in (issue, issue, listen, listen)]
    for thread in threads:
        thread.start()
    threading.Timer(1.0, is_over.set).start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert failures == []


def test_a_native_reader_counts() -> None:
    x, y = torch.ones(8, 4, device="loom"), torch.ones(8, 4, device="loom")
    counter = _C.KernelCounter()
    counter.attach()
    x + y
    torch.mm(x, y.t())
    counter.detach()
    counts = counter.counts()
    assert (counts["begun"], counts["ended"]) == (2, 2)
    assert counts["read_bytes"] == 4 * 128
    assert counts["written_bytes"] == 128 + 256
