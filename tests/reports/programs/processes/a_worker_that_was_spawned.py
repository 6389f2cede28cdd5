import torch
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return torch.full((2,), float(index), device="cuda")


if __name__ == "__main__":
    loader = DataLoader(Numbers(), 2, num_workers=1, multiprocessing_context="spawn")
    assert [batch.sum().item() for batch in loader] == [2, 10]
