import torch
from torch import nn

from tests.compiler.programs.compiled_training.common import compare


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), 1)
        self.by_time = nn.TransformerEncoderLayer(64, 4, 128)
        self.attention = nn.MultiheadAttention(64, 8, dropout=0.1, batch_first=True)

    def forward(self, x):
        x = self.by_time(self.encoder(x).transpose(0, 1)).transpose(0, 1)
        return self.attention(x, x, x, need_weights=False)[0]


compare(Attention(), torch.randn(3, 10, 64))
