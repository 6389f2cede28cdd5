import torch
from torch import nn

from tests.compiler.programs.compiled_training.common import compare


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(8, 6, batch_first=True, num_layers=2, dropout=0.2)
        self.gru = nn.GRU(6, 4)

    def forward(self, x):
        return self.gru(self.lstm(x)[0])[0]


torch._dynamo.config.allow_rnn = True
compare(Recurrent(), torch.randn(2, 3, 8))
