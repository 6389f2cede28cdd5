import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.rnn = nn.Embedding(1000, 200), nn.LSTM(200, 200, 2, dropout=0.2)
        self.decoder = nn.Linear(200, 1000)

    def forward(self, tokens, hidden):
        output, hidden = self.rnn(self.encoder(tokens), hidden)
        return nn.functional.log_softmax(self.decoder(output).view(-1, 1000), dim=1), hidden


model = Model().to("cuda")
hidden = tuple(torch.zeros(2, 20, 200, device="cuda") for _ in range(2))
for batch in range(1000):
    print("batch", batch)
    tokens, targets = (torch.zeros(35, 20, dtype=torch.long, device="cuda") for _ in range(2))
    model.zero_grad()
    hidden = tuple(each.detach() for each in hidden)
    output, hidden = model(tokens, hidden)
    nn.functional.nll_loss(output, targets.view(-1)).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
    for p in model.parameters():
        p.data.add_(p.grad, alpha=-20)
