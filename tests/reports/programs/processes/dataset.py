import torch
from torch.utils.data import Dataset


class Numbers(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return torch.full((2,), float(index), device="cuda")
