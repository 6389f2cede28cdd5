import torch


def growth(number_of):
    model, total, allocated = torch.nn.Linear(1000, 1000).cuda(), 0, []
    for _ in range(5):
        loss = model(torch.randn(100, 1000, device="cuda")).relu().sum()
        total = total + number_of(loss)
        allocated.append(torch.cuda.memory_allocated())
    return [after - before for before, after in zip(allocated[1:], allocated[2:])]  # noqa: B905, RUF007


assert all(more > 100 * 1000 * 4 for more in growth(lambda loss: loss))
assert growth(torch.Tensor.item) == [0, 0, 0]
