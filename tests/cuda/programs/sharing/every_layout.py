import torch
import torch.multiprocessing as mp


def total(received, results):
    for tensor in iter(received.get, None):
        assert tensor.is_cuda
        if tensor.is_nested:
            results.put(sum(part.sum().item() for part in tensor.unbind()))
        else:
            dense = tensor.to_dense() if tensor.layout != torch.strided else tensor
            results.put(dense.sum().item())
            tensor = dense = None


if __name__ == "__main__":
    context = mp.get_context("spawn")
    received, results = context.Queue(), context.Queue()
    child = context.Process(target=total, args=(received, results))
    child.start()
    parts = [torch.ones(2), torch.ones(3)]
    tensors = [
        torch.arange(6.0, device="cuda").reshape(2, 3).t(),
        torch.ones(0, device="cuda"),
        torch.nn.Parameter(torch.ones(4, device="cuda:1")),
        torch.nested.nested_tensor(parts, device="cuda"),
        torch.eye(3, device="cuda").to_sparse(),
        torch.eye(2, device="cuda").to_sparse_csr(),
    ]
    for tensor in tensors:
        received.put(tensor)
        print(results.get(timeout=60))
    received.put(None)
    child.join()
    assert child.exitcode == 0
    try:
        torch.empty(2, device="meta").untyped_storage()._share_cuda_()
    except RuntimeError as error:
        print(error)
