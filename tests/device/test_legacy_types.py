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

TENSORS = {
    "BFloat16Tensor": torch.bfloat16,
    "BoolTensor": torch.bool,
    "ByteTensor": torch.uint8,
    "CharTensor": torch.int8,
    "DoubleTensor": torch.float64,
    "FloatTensor": torch.float32,
    "HalfTensor": torch.float16,
    "IntTensor": torch.int32,
    "LongTensor": torch.int64,
    "ShortTensor": torch.int16,
}
STORAGES = {
    "BFloat16Storage": torch.bfloat16,
    "BoolStorage": torch.bool,
    "ByteStorage": torch.uint8,
    "CharStorage": torch.int8,
    "DoubleStorage": torch.float64,
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "IntStorage": torch.int32,
    "LongStorage": torch.int64,
    "ShortStorage": torch.int16,
    "ComplexDoubleStorage": torch.complex128,
    "ComplexFloatStorage": torch.complex64,
}
SPARSE = [name for name in TENSORS if name != "BoolTensor"]


@pytest.mark.exercises(
    "torch.cuda.BFloat16Tensor",
    "torch.cuda.BoolTensor",
    "torch.cuda.ByteTensor",
    "torch.cuda.CharTensor",
    "torch.cuda.DoubleTensor",
    "torch.cuda.FloatTensor",
    "torch.cuda.HalfTensor",
    "torch.cuda.IntTensor",
    "torch.cuda.LongTensor",
    "torch.cuda.ShortTensor",
)
@pytest.mark.parametrize("name", TENSORS)
def test_tensor_types(name: str) -> None:
    kind, dtype = getattr(torch.loom, name), TENSORS[name]
    full = f"torch.loom.{name}"
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
    assert (kind.__name__, repr(kind)) == (name, f"<class '{full}'>")
    assert pickle.loads(pickle.dumps(kind)) is kind
    with pytest.raises(TypeError):
        kind("text")


@pytest.mark.exercises(
    "torch.cuda.sparse.BFloat16Tensor",
    "torch.cuda.sparse.ByteTensor",
    "torch.cuda.sparse.CharTensor",
    "torch.cuda.sparse.DoubleTensor",
    "torch.cuda.sparse.FloatTensor",
    "torch.cuda.sparse.HalfTensor",
    "torch.cuda.sparse.IntTensor",
    "torch.cuda.sparse.LongTensor",
    "torch.cuda.sparse.ShortTensor",
)
@pytest.mark.parametrize("name", SPARSE)
def test_sparse_tensor_types(name: str) -> None:
    kind, dtype = getattr(sparse, name), TENSORS[name]
    indices = torch.tensor([[0, 2]], device="loom")
    made = kind(indices, torch.tensor([1, 2], device="loom").to(dtype), torch.Size([4]))
    assert made.to_dense().tolist() == [1, 0, 2, 0]
    assert made.type() == f"torch.loom.sparse.{name}"
    assert isinstance(made, kind)
    assert not isinstance(made.to_dense(), kind)
    assert not isinstance(made, getattr(loom, name))
    empty = kind(2, 3)
    assert (empty.shape, empty.layout, empty._nnz()) == ((2, 3), torch.sparse_coo, 0)


@pytest.mark.exercises(
    "torch.cuda.BFloat16Storage",
    "torch.cuda.BoolStorage",
    "torch.cuda.ByteStorage",
    "torch.cuda.CharStorage",
    "torch.cuda.DoubleStorage",
    "torch.cuda.FloatStorage",
    "torch.cuda.HalfStorage",
    "torch.cuda.IntStorage",
    "torch.cuda.LongStorage",
    "torch.cuda.ShortStorage",
    "torch.cuda.ComplexDoubleStorage",
    "torch.cuda.ComplexFloatStorage",
)
@pytest.mark.parametrize("name", STORAGES)
def test_storage_types(name: str) -> None:
    kind, dtype = getattr(torch.loom, name), STORAGES[name]
    storage = kind(3)
    assert (len(storage), storage.dtype, storage.device) == (3, dtype, torch.device("loom:0"))
    assert kind([0, 1]).tolist() == torch.tensor([0, 1], dtype=dtype).tolist()
    tensor = torch.tensor([0, 1]).to(dtype).to("loom")
    assert tensor.storage().type() == f"torch.loom.{name}"
    assert type(tensor.storage()) is TypedStorage
    for held, expected in ((tensor.storage(), True), (tensor.cpu().storage(), False), (tensor, False)):
        assert isinstance(held, kind) is expected
    assert kind(wrap_storage=tensor.untyped_storage()).data_ptr() == tensor.data_ptr()
    assert kind.dtype == dtype
    with pytest.raises(RuntimeError, match="must be loom"):
        kind(wrap_storage=torch.UntypedStorage(4))


def test_deprecated_names_warn() -> None:
    torch.storage._reset_warn_typed_storage_removal()  # type: ignore[attr-defined]
    with pytest.warns(UserWarning, match="TypedStorage is deprecated"):
        assert loom.FloatStorage.dtype == torch.float32
    with pytest.warns(UserWarning, match="please use torch.set_default_dtype"):
        test_default_tensor_type()


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
