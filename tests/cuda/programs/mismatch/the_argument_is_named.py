import torch
import torch.nn.functional as F


def text(call):
    try:
        call()
    except RuntimeError as error:
        return str(error)
    raise AssertionError("nothing was raised")


def named(call, argument, other, common, method):
    expected = (
        f"Expected all tensors to be on the same device, but got {argument} is on {other}, different "
        f"from other tensors on {common} (when checking argument in method wrapper_CUDA_{method})"
    )
    assert text(call) == expected, text(call)


host, x, y = torch.ones(2, 2), torch.ones(2, 2, device="cuda"), torch.ones(2, 2, device="cuda:1")
whole = torch.tensor([0, 1])
named(lambda: torch.mm(x, host), "mat2", "cpu", "cuda:0", "mm")
named(lambda: torch.mm(host, x), "mat2", "cuda:0", "cpu", "mm")
named(lambda: torch.mm(x, y), "mat2", "cuda:1", "cuda:0", "mm")
named(lambda: torch.mm(x, x, out=torch.ones(2, 2)), "self", "cuda:0", "cpu", "mm_out_out")
named(lambda: F.linear(x, host, host[0]), "mat1", "cuda:0", "cpu", "addmm")
named(lambda: F.linear(x, host, x[0]), "mat2", "cpu", "cuda:0", "addmm")
named(lambda: torch.index_select(x, 0, whole), "index", "cpu", "cuda:0", "_index_select")
named(lambda: F.embedding(whole, x), "index", "cpu", "cuda:0", "_index_select")
named(lambda: torch.cat([x, host]), "tensors", "cpu", "cuda:0", "cat")
named(lambda: F.layer_norm(x, (2,), host[0]), "weight", "cpu", "cuda:0", "_native_layer_norm")

assert "found at least two devices, cuda:0 and cpu!" in text(lambda: x + host)
assert "found at least two devices, cuda:0 and cpu!" in text(lambda: host + x)

for indexed, index in ((host, whole.cuda()), (x, whole.cuda(1))):
    expected = f"or on the same device as the indexed tensor ({indexed.device})"
    assert text(lambda: indexed[index]).endswith(expected)

images, kernel = torch.ones(1, 1, 3, 3), torch.ones(1, 1, 2, 2)
assert text(lambda: F.conv2d(images.cuda(), kernel)) == (
    "Input type (torch.cuda.FloatTensor) and weight type (torch.FloatTensor) should be the same"
)
assert text(lambda: F.conv2d(images, kernel.cuda())) == (
    "Input type (torch.FloatTensor) and weight type (torch.cuda.FloatTensor) should be the same or "
    "input should be a MKLDNN tensor and weight is a dense tensor"
)
assert text(lambda: F.conv2d(images.cuda(), kernel.cuda(), torch.ones(1))) == (
    "Input type (torch.cuda.FloatTensor) and bias type (torch.FloatTensor) should be the same"
)
