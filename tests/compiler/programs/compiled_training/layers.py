import torch
from torch import nn

from tests.compiler.programs.compiled_training.common import compare


class Norms(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 16)
        self.norms = nn.Sequential(nn.LayerNorm(16), nn.RMSNorm(16), nn.Linear(16, 16))
        self.dropout, self.groups = nn.Dropout(0.3), nn.GroupNorm(2, 4)

    def forward(self, words):
        x = self.dropout(self.norms(self.embedding(words)))
        x = self.dropout(x.transpose(1, 2)).transpose(1, 2) + self.dropout(x[:, 1:])[:, :1]
        return self.groups(x)


compare(Norms(), torch.arange(12).view(3, 4))
image = torch.randn(2, 3, 8, 8)
layers = nn.Sequential(
    *(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.3), nn.ChannelShuffle(2)),
    *(nn.MaxPool2d(2), nn.Dropout2d(0.3), nn.ConvTranspose2d(8, 4, 2), nn.GroupNorm(2, 4), nn.Flatten()),
)
compare(layers, image)
last = torch.channels_last
compare(layers.to(memory_format=last), image.to(memory_format=last))
