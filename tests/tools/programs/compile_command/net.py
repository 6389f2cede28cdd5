import torch
from parts import WIDTH

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(WIDTH, 16), torch.nn.GELU(), torch.nn.Linear(16, 4)).eval()


def inputs():
    return torch.ones(2, WIDTH)


if __name__ == "__main__":
    raise SystemExit("the script's own work")
