"""Fallbacks: what a chip does not do itself is counted, logged or warned of once, or refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from torch_loom.errors import FallbackError, LoomError

ATOM = {"TORCH_LOOM_CHIP": "atom"}
EAGER_ATOM = {**ATOM, "TORCH_LOOM_MEMORY_POLICY": "eager"}

PRELUDE = """
import logging, torch_loom
torch_loom._autoload()

class Kept(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines = []
    def emit(self, record):
        self.lines.append(record.getMessage())

kept = Kept()
logger = logging.getLogger("torch_loom")
logger.addHandler(kept)
logger.setLevel(logging.INFO)
def stats():
    counts = torch.loom.fallback_stats()
    return {(op.removeprefix("aten::"), dtype): count for (op, dtype), count in counts.items()}
half = lambda *size: torch.zeros(*size, dtype=torch.float16, device="loom")
"""


def _program(body: str) -> str:
    return PRELUDE + "\n".join(line[4:] for line in body.splitlines())


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
    fork_loom(
        _program("""
    x = torch.ones(4, device="loom").to(torch.float8_e4m3fn)  # a copy
    assert stats() == {}, stats()
    y = torch.ones(4, device="loom", dtype=torch.uint16)
    assert (y == y).all()
    assert stats() == {("eq", torch.uint16): 1}, stats()
    # An index beside floating-point values is no dtype to compute in.
    torch.ones(4, device="loom").index_select(0, torch.zeros(2, dtype=torch.int64, device="loom"))
    assert len(stats()) == 1
    """)
    )


@pytest.mark.parametrize("env", [ATOM, EAGER_ATOM])
def test_ops_are_counted_and_logged_once(fork_loom, env) -> None:
    fork_loom(
        _program("""
    x = half(4, 4)
    y = x + x
    y = torch.nn.functional.linear(y, x, x[0]).mul_(2).sub(1).softmax(-1)
    y = (1 - y).masked_fill(y > 0, 0).t().contiguous()[1:].max()
    y = torch.cat([x, x.clone().zero_(), torch.ones_like(x)]).repeat(2, 1).view(-1)
    assert stats() == {}, stats()
    for _ in range(3):
        y.exp()
        x.max(dim=0)  # of a whole tensor it is native
    x.exp_()
    assert stats() == {("exp", None): 3, ("max", None): 3, ("exp_", None): 1}, stats()
    first = [line.splitlines()[0] for line in kept.lines]
    assert first == [f"`aten::{op}` op ran on CPU instead of LOOM" for op in ("exp", "max", "exp_")], first
    assert '"<test>", line' in kept.lines[0] and "_fallback.py" not in kept.lines[0], kept.lines[0]

    torch.loom.reset_fallback_stats()
    assert torch.loom.fallback_stats() == {}
    y.exp()
    assert stats() == {("exp", None): 1} and len(kept.lines) == 4
    """),
        env,
    )


def test_dtypes_are_counted_and_logged_once(fork_loom) -> None:
    fork_loom(
        _program("""
    x = torch.ones(4, device="loom")  # storable, not computed in
    x.half().float().view(2, 2).clone().copy_(torch.zeros(2, 2)).fill_(1)
    assert stats() == {}, stats()
    x + x, x + x, x.exp()
    assert stats() == {("add", torch.float32): 2, ("exp", None): 1}, stats()
    line = "`aten::add` op ran on CPU instead of LOOM: float32 is not a dtype of the chip 'atom'"
    assert kept.lines[0].splitlines()[0] == line, kept.lines[0]
    half(4).masked_fill(half(4) > 0, 1)  # masks may be bool
    half(4).index_select(0, torch.zeros(2, dtype=torch.int64, device="loom"))
    assert len(stats()) == 2
    x.bool().logical_not()
    assert stats()["logical_not", torch.bool] == 1
    """),
        ATOM,
    )


def test_random_numbers_count_where_they_are_made(fork_loom) -> None:
    body = _program("""
    torch.randn(4, device="loom", dtype=torch.float16)
    assert stats() == {("normal_", None): 1}, stats()
    torch.arange(4, device="loom", dtype=torch.float16)
    assert len(stats()) == 1, stats()
    """)
    fork_loom(body, ATOM)
    fork_loom(body, EAGER_ATOM)


def test_side_streams_backward_threads_and_graphs(fork_loom) -> None:
    fork_loom(
        _program("""
    import threading
    x = half(8, 8)
    stream = torch.loom.Stream()
    with torch.loom.stream(stream):
        for _ in range(20):
            x.exp()
    stream.synchronize()
    assert stats() == {("exp", None): 20}, stats()

    torch.loom.reset_fallback_stats()
    kept.lines.clear()
    barrier = threading.Barrier(8)
    def work():
        barrier.wait()
        for _ in range(50):
            x.sin()
    threads = [threading.Thread(target=work) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert stats() == {("sin", None): 400}, stats()
    assert len(kept.lines) == 1

    torch.loom.reset_fallback_stats()
    torch.autograd.set_multithreading_enabled(True)
    leaf = half(8, 8).requires_grad_()
    leaf.exp().backward(half(8, 8))
    assert stats()["exp", None] == 1

    graph = torch.loom.LoomGraph() if hasattr(torch.loom, "LoomGraph") else torch.loom.CUDAGraph()
    x.cos()
    torch.loom.reset_fallback_stats()
    with torch.loom.graph(graph):
        x.cos()
    assert stats() == {("cos", None): 1}, stats()
    graph.replay()
    torch.loom.synchronize()
    assert stats() == {("cos", None): 1}, stats()
    """),
        EAGER_ATOM,
    )


def test_warn(fork_loom) -> None:
    fork_loom(
        _program("""
    import warnings
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            half(4).exp()
        torch.ones(4, device="loom") * 2
    texts = [str(one.message) for one in caught]
    assert [one.category.__name__ for one in caught] == ["FallbackWarning"] * 2, caught
    assert texts[0] == "`aten::exp` op ran on CPU instead of LOOM"
    assert caught[0].filename == "<test>", caught[0].filename
    assert stats() == {("exp", None): 3, ("mul", torch.float32): 1}
    """),
        {**ATOM, "TORCH_LOOM_FALLBACK": "warn"},
    )


def test_error(fork_loom) -> None:
    fork_loom(
        _program("""
    import threading
    from torch_loom.errors import FallbackError
    x = half(4)
    for _ in range(2):
        words = "aten::exp: the op (here on float16) is not native to the chip 'atom'"
        raises("FallbackError", words, lambda: x.exp())
        words = "aten::add: the dtype float32 is not native to the chip 'atom'"
        raises("FallbackError", words, lambda: x.float() + 1)
        raises("FallbackError", "aten::normal_: the op is not native", lambda: torch.randn(3, device="loom"))
    try:
        x.exp()
    except NotImplementedError as error:
        assert isinstance(error, FallbackError)
        assert "TORCH_LOOM_FALLBACK" in str(error) and "silu" in str(error)
    try:
        x.float() + 1
    except FallbackError as error:
        assert "The dtypes of this chip are: float16." in str(error)
    assert stats() == {} and kept.lines == []

    # What is refused in a backward pass reaches who called it; the device can be used further.
    torch.autograd.set_multithreading_enabled(True)
    leaf = half(4).requires_grad_()
    y = leaf.sigmoid()
    raises("FallbackError", "aten::sigmoid_backward", lambda: y.backward(half(4)))
    assert (half(4) + 1).cpu().tolist() == [1.0] * 4
    with torch.loom.stream(torch.loom.Stream()):
        raises("FallbackError", "aten::exp", lambda: half(4).exp())
    torch.loom.synchronize()
    """),
        {**ATOM, "TORCH_LOOM_FALLBACK": "error"},
    )


def test_a_warning_as_an_error_stops_the_op(fork_loom) -> None:
    fork_loom(
        _program("""
    import warnings
    warnings.simplefilter("error")
    x = half(4)
    raises("FallbackWarning", "aten::exp_", lambda: x.exp_())
    assert x.cpu().tolist() == [0.0] * 4 and stats() == {}
    """),
        {**ATOM, "TORCH_LOOM_FALLBACK": "warn"},
    )


def test_under_the_name_rbln(fork_python) -> None:
    done = fork_python(
        """
        import torch_loom
        torch_loom._autoload()
        x = torch.zeros(4, dtype=torch.float16, device="rbln")
        x.exp()
        x.exp()
        """,
        {"TORCH_LOOM_DEVICE_NAME": "rbln", "TORCH_RBLN_LOG_LEVEL": "INFO"},
    )
    lines = done.stderr.splitlines()
    assert lines[0] == "[TORCH-RBLN][INFO] `aten::exp` op ran on CPU instead of RBLN"
    assert sum("`aten::exp`" in line for line in lines) == 1
    assert any("<test>" in line for line in lines)


def test_rbln_refuses_what_its_variable_names(fork_python) -> None:
    body = """
        import torch_loom
        torch_loom._autoload()
        x = torch.zeros(4, dtype=torch.float16, device="rbln")
        raises("FallbackError", "aten::exp", lambda: x.exp())
        """
    name = {"TORCH_LOOM_DEVICE_NAME": "rbln"}
    fork_python(body, {**name, "TORCH_RBLN_DISABLE_FALLBACK": "compile_error, unsupported_op"})
    plain = body.replace('raises("FallbackError", "aten::exp", lambda: x.exp())', "x.exp()")
    fork_python(plain, {**name, "TORCH_RBLN_DISABLE_FALLBACK": "compile_error"})
    fork_python(plain, {**name, "TORCH_RBLN_DISABLE_FALLBACK": "all", "TORCH_LOOM_FALLBACK": "allow"})
    bad = fork_python(plain, {**name, "TORCH_RBLN_DISABLE_FALLBACK": "everything"}, check=False)
    assert "TORCH_RBLN_DISABLE_FALLBACK='everything': no such word: 'everything'" in bad.stderr


def test_level_of_the_log(fork_loom) -> None:
    body = """
        import torch_loom
        torch_loom._autoload()
        torch.zeros(4, dtype=torch.float16, device="loom").exp()
        """
    shown = fork_loom(body, {**ATOM, "TORCH_LOOM_LOG_LEVEL": "INFO"})
    assert shown.stderr.startswith("[TORCH-LOOM][INFO] `aten::exp` op ran on CPU instead of LOOM\n")
    assert fork_loom(body, {**ATOM, "TORCH_LOOM_LOG_LEVEL": "WARNING"}).stderr == ""
    assert fork_loom(body, ATOM).stderr == ""


def test_a_chip_that_lists_an_unknown_op(fork_loom, tmp_path: Path) -> None:
    text = (Path(torch.loom.__file__).parents[1] / "chips" / "atom.toml").read_text()
    chip = tmp_path / "own.toml"
    chip.write_text(text.replace('"abs"', '"abz"'))
    body = """
        import torch_loom
        torch_loom._autoload()
        raises("ChipError", "native_ops: there is no op 'abz'", lambda: torch.loom.init())
        """
    fork_loom(body, {"TORCH_LOOM_CHIP": str(chip)})
    chip.write_text(text.replace('"max.default"', '"max.nothing"'))
    fork_loom(body.replace("abz", "max.nothing"), {"TORCH_LOOM_CHIP": str(chip)})
