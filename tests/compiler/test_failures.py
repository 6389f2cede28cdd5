"""What torch_loom.compile says of models that fail, before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import torch_loom
from torch_loom.compiler import backend
from torch_loom.errors import CompilerOptionError, ExportError, ImageError

pytestmark = pytest.mark.usefixtures("plain_configuration")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)  # this line


def compiled(net: nn.Module, x: torch.Tensor, is_training: bool) -> torch_loom.Executable:
    return trained(net, x, torch.optim.SGD) if is_training else torch_loom.compile(net, (x,))


def trained(net: nn.Module, x: torch.Tensor, kind: Any) -> torch_loom.Executable:
    optimizer, target = kind(net.parameters(), lr=0.1), torch.zeros(2, 4)
    return torch_loom.compile(net, (x, target), optimizer=optimizer, loss=functional.mse_loss)


@pytest.mark.parametrize("is_training", [False, True])
def test_a_wrong_shape_names_the_line(is_training: bool, capfd: pytest.CaptureFixture[str]) -> None:
    net, x = Net(), torch.randn(2, 5)
    with pytest.raises(RuntimeError, match=r"\[2, 5\][^$]*test_failures.py:\d+, in forward, `.*# this line`"):
        compiled(net, x, is_training)
    assert "fake_tensor" not in capfd.readouterr().err


def test_a_branch_on_values_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    class Branches(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x if x.sum() > 0 else -x

    with pytest.raises(ExportError, match=r"test_failures.py:\d+, in forward"):
        torch_loom.compile(Branches(), (torch.ones(2),))
    assert capfd.readouterr().err == ""


def test_the_models_own_error_keeps_its_class() -> None:
    class Refuses(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise ValueError(f"too long: {x.shape[0]}")

    with pytest.raises(ValueError, match=r"too long: 2\nin the model: .*test_failures.py"):
        torch_loom.compile(Refuses(), (torch.ones(2),))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64, torch.int64])
@pytest.mark.parametrize("is_training", [False, True])
def test_a_dtype_that_eager_refuses_is_refused(dtype: torch.dtype, is_training: bool) -> None:
    net, x = Net().to("loom"), torch.ones(2, 8, dtype=dtype)
    with pytest.raises(RuntimeError, match="same dtype") as eager:
        net(x.to("loom"))
    with pytest.raises(RuntimeError, match="same dtype") as ours:
        compiled(net, x, is_training)
    assert str(ours.value).startswith(str(eager.value).partition("\n")[0])
    assert "test_failures.py:" in str(ours.value)


def test_dtypes_that_eager_takes_together_are_compiled() -> None:
    class Masked(nn.Module):
        def forward(self, q: torch.Tensor, mask: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
            return functional.scaled_dot_product_attention(q, q, q, mask) + ids

    q, mask = torch.randn(1, 2, 4, 8), torch.ones(4, 4, dtype=torch.bool).tril()
    ids = torch.arange(8)
    ours = torch_loom.compile(Masked(), (q, mask, ids))(q, mask, ids)
    assert torch.equal(ours, Masked()(q.to("loom"), mask.to("loom"), ids.to("loom")))


def test_an_optimizer_with_a_closure_is_refused() -> None:
    with pytest.raises(CompilerOptionError, match=r"LBFGS computes the loss several times.*closure"):
        trained(Net(), torch.ones(2, 8), torch.optim.LBFGS)


def test_a_plan_without_ops_on_the_chip_says_why() -> None:
    run = torch_loom.compile(Net(), (torch.ones(2, 8),), chip="atom")
    assert "none runs on the chip" in repr(run)
    assert "float32, which is not among the dtypes of atom" in repr(run)


def test_names_are_there_before_they_are_imported() -> None:
    modules = {"numerics", "compiler", "pipeline", "pybuda", "chips"}
    assert {"compile", "Executable", *modules} <= {*dir(torch_loom)}
    assert {"compile_module", "load_onnx", "set_configuration_options"} <= {*dir(torch_loom.compiler)}
    for name in modules:
        assert getattr(torch_loom, name).__name__ == f"torch_loom.{name}"


@pytest.mark.parametrize(
    "given", [{"chip": 3}, {"dump": 3}, {"checks": "x"}, {"cache": 3}, {"progress": 3}, {"sample_kwargs": 3}]
)
def test_an_argument_of_another_type_is_named(given: dict[str, Any]) -> None:
    ((name, value),) = given.items()
    with pytest.raises(CompilerOptionError, match=f"{name}={value!r}: it takes"):
        torch_loom.compile(nn.Identity(), (torch.ones(2),), **given)


@pytest.mark.parametrize("options", [3, [1], {3: 4}])
def test_options_of_the_backend_are_a_dictionary(options: Any) -> None:
    with pytest.raises(CompilerOptionError, match="it takes a dictionary"):
        backend._own_options(options)


@pytest.mark.long
def test_casts_between_families_are_exact() -> None:
    class Casts(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.double().half()

    x = torch.rand(3, 4, device="loom")
    assert torch.equal(torch_loom.compile(Casts(), (x,))(x), x.double().half())


def test_a_report_is_there_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = torch_loom.compile(nn.Linear(4, 2), (torch.rand(3, 4),))
    path = tmp_path / "plan.html"
    run.report(path)
    before = path.read_text()

    def full(target: Path, *_: Any, **__: Any) -> None:
        with open(target, "w") as file:
            file.write("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(ImageError, match="report cannot be written"):
        run.report(path)
    assert path.read_text() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("change", [{"given": None}, {"given": [True]}, {"constants": 3}])
def test_an_image_whose_constants_have_no_places_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    class Scaled(nn.Module):
        def forward(self, x: torch.Tensor, factor: float) -> torch.Tensor:
            return x * factor

    run = torch_loom.compile(Scaled(), (torch.rand(3, 4), 2.0))
    run.specs.update(change)
    run.save(tmp_path / "net.loom")
    with pytest.raises(ImageError, match="do not fit the constants"):
        torch_loom.Executable.load(tmp_path / "net.loom")


def test_results_that_are_views_share_memory_as_documented() -> None:
    class Views(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            y = x * 2
            return y, y.view(-1), x.view(-1)

    x = torch.rand(3, 4, device="loom")
    run = torch_loom.compile(Views(), (x,), backend_opt_level=0)
    replayed = torch_loom.compile(Views(), (x,))
    for _ in range(4):
        for executable in (run, replayed):
            whole, flat, given = executable(x)
            assert torch.equal(whole.view(-1), flat)
            assert whole.data_ptr() == flat.data_ptr()
            assert torch.equal(given, x.view(-1))
    assert given.data_ptr() != x.data_ptr()
