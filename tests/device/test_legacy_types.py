"""torch.loom.FloatTensor, FloatStorage and their like."""

from __future__ import annotations

import pickle

import pytest
import torch
from torch.storage import TypedStorage

import torch_loom.device as loom
from torch_loom.device import sparse

pytestmark = pytest.mark.filterwarnings(
    "ignore:TypedStorage is deprecated",
    "ignore:Sparse invariant",
    r"ignore:torch.set_default_tensor_type\(\) is deprecated",
)

DTYPES = {
    "BFloat16": torch.bfloat16,
    "Bool": torch.bool,
    "Byte": torch.uint8,
    "Char": torch.int8,
    "Double": torch.float64,
    "Float": torch.float32,
    "Half": torch.float16,
    "Int": torch.int32,
    "Long": torch.int64,
    "Short": torch.int16,
}
STORAGES = {**DTYPES, "ComplexDouble": torch.complex128, "ComplexFloat": torch.complex64}
SPARSE = [name for name in DTYPES if name != "Bool"]


@pytest.mark.exercises(*(f"torch.cuda.{name}Tensor" for name in DTYPES))
@pytest.mark.parametrize("name", DTYPES)
def test_tensor_types(name: str) -> None:
    kind, dtype = getattr(torch.loom, f"{name}Tensor"), DTYPES[name]
    full = f"torch.loom.{name}Tensor"
    sized = kind(2, 3)
    assert (sized.shape, sized.dtype, sized.device) == ((2, 3), dtype, torch.device("loom:0"))
    given = kind([0, 1, 1])
    assert given.tolist() == torch.tensor([0, 1, 1], dtype=dtype).tolist()
    assert given.type() == full
    assert kind(given).data_ptr() == given.data_ptr()
    assert kind(torch.Size([1, 2])).shape == (1, 2)
    assert kind().numel() == 0
    for tensor, expected in (
        (given, True),
        (given.cpu(), False),
        (given.to(torch.complex64), False),
        (3, False),
    ):
        assert isinstance(tensor, kind) is expected
    for target in (kind, full):
        moved = torch.tensor([0, 1]).type(target)
        assert isinstance(moved, kind)
        assert moved.tolist() == [0, 1]
    with loom.device(1):
        assert kind(2).get_device() == 1
    assert kind.dtype == dtype
    assert (kind.__name__, repr(kind)) == (f"{name}Tensor", f"<class '{full}'>")
    assert pickle.loads(pickle.dumps(kind)) is kind
    with pytest.raises(TypeError):
        kind("text")


@pytest.mark.exercises(*(f"torch.cuda.sparse.{name}Tensor" for name in SPARSE))
@pytest.mark.parametrize("name", SPARSE)
def test_sparse_tensor_types(name: str) -> None:
    kind, dtype = getattr(sparse, f"{name}Tensor"), DTYPES[name]
    indices = torch.tensor([[0, 2]], device="loom")
    made = kind(indices, torch.tensor([1, 2], device="loom").to(dtype), torch.Size([4]))
    assert made.to_dense().tolist() == [1, 0, 2, 0]
    assert made.type() == f"torch.loom.sparse.{name}Tensor"
    assert isinstance(made, kind)
    assert not isinstance(made.to_dense(), kind)
    assert not isinstance(made, getattr(loom, f"{name}Tensor"))
    empty = kind(2, 3)
    assert (empty.shape, empty.layout, empty._nnz()) == ((2, 3), torch.sparse_coo, 0)


@pytest.mark.exercises(*(f"torch.cuda.{name}Storage" for name in STORAGES))
@pytest.mark.parametrize("name", STORAGES)
def test_storage_types(name: str) -> None:
    kind, dtype = getattr(torch.loom, f"{name}Storage"), STORAGES[name]
    storage = kind(3)
    assert (len(storage), storage.dtype, storage.device) == (3, dtype, torch.device("loom:0"))
    assert kind([0, 1]).tolist() == torch.tensor([0, 1], dtype=dtype).tolist()
    tensor = torch.tensor([0, 1]).to(dtype).to("loom")
    assert tensor.storage().type() == f"torch.loom.{name}Storage"
    assert type(tensor.storage()) is TypedStorage
    for held, expected in ((tensor.storage(), True), (tensor.cpu().storage(), False), (tensor, False)):
        assert isinstance(held, kind) is expected
    assert kind(wrap_storage=tensor.untyped_storage()).data_ptr() == tensor.data_ptr()
    assert kind.dtype == dtype
    with pytest.raises(RuntimeError, match="must be loom"):
        kind(wrap_storage=torch.UntypedStorage(4))


def test_default_tensor_type() -> None:
    try:
        for kind in ("torch.loom.HalfTensor", loom.DoubleTensor):
            torch.set_default_tensor_type(kind)  # type: ignore[arg-type]
            made = torch.ones(2)
            expected = kind if isinstance(kind, str) else "torch.loom.DoubleTensor"
            assert made.type() == expected
        with pytest.raises(TypeError, match="floating"):
            torch.set_default_tensor_type(loom.IntTensor)  # type: ignore[arg-type]
    finally:
        torch.set_default_tensor_type(torch.FloatTensor)
    assert torch.ones(2).type() == "torch.FloatTensor"
