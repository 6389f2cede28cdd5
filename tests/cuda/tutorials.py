"""Fifty small training programs in the shapes of PyTorch's tutorials: prints the last loss of each.

They choose their device as tutorials do, so that the same text runs on cuda and on the CPU. Weights and data
are made on the CPU: the random numbers of a GPU are others.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
PROGRAMS: dict[str, Callable[[], float]] = {}
STEPS = 4


def program(function: Callable[[], float]) -> Callable[[], float]:
    PROGRAMS[function.__name__] = function
    return function


def train(
    model: nn.Module, x: Tensor, y: Tensor, loss_of: Callable[[Tensor, Tensor], Tensor], lr: float = 0.05
) -> float:
    model, x, y = model.to(device), x.to(device), y.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    for _ in range(STEPS):
        loss = loss_of(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def images(channels: int = 1, size: int = 12) -> Tensor:
    return torch.randn(8, channels, size, size)


def labels(count: int = 8, classes: int = 5) -> Tensor:
    return torch.arange(count) % classes


def mlp(width: int = 16, out: int = 5) -> nn.Module:
    return nn.Sequential(nn.Linear(10, width), nn.ReLU(), nn.Linear(width, out))


class Last(nn.Module):
    """The last step of a recurrent layer, and a classifier on it."""

    def __init__(self, layer: nn.RNNBase) -> None:
        super().__init__()
        self.layer, self.head = layer, nn.Linear(layer.hidden_size * (1 + layer.bidirectional), 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(x)[0][:, -1])


class Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU()
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.head = nn.Linear(16, 48), nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (4, 4)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.head(mixed.transpose(1, 2).flatten(2)[:, -1])


MODELS: dict[str, Callable[[], tuple[nn.Module, Tensor]]] = {
    "logistic_regression": lambda: (nn.Linear(10, 5), torch.randn(8, 10)),
    "perceptron": lambda: (mlp(), torch.randn(8, 10)),
    "lenet": lambda: (
        nn.Sequential(nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(96, 5)),
        images(),
    ),
    "resnet": lambda: (
        nn.Sequential(
            nn.Conv2d(3, 8, 3), Residual(8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)
        ),
        images(3),
    ),
    "depthwise": lambda: (
        nn.Sequential(nn.Conv2d(4, 4, 3, groups=4), nn.Hardswish(), nn.Flatten(), nn.Linear(400, 5)),
        images(4),
    ),
    "dilated": lambda: (
        nn.Sequential(nn.Conv2d(1, 4, 3, dilation=2, stride=2), nn.SiLU(), nn.Flatten(), nn.LazyLinear(5)),
        images(),
    ),
    "convolution_1d": lambda: (
        nn.Sequential(nn.Conv1d(2, 4, 5), nn.ELU(), nn.AvgPool1d(2), nn.Flatten(), nn.LazyLinear(5)),
        torch.randn(8, 2, 20),
    ),
    "convolution_3d": lambda: (
        nn.Sequential(nn.Conv3d(1, 2, 3), nn.Tanh(), nn.Flatten(), nn.LazyLinear(5)),
        torch.randn(8, 1, 6, 6, 6),
    ),
    "transposed": lambda: (
        nn.Sequential(nn.ConvTranspose2d(1, 2, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.LazyLinear(5)),
        images(1, 6),
    ),
    "rnn": lambda: (Last(nn.RNN(6, 8, batch_first=True)), torch.randn(8, 7, 6)),
    "gru": lambda: (Last(nn.GRU(6, 8, 2, batch_first=True)), torch.randn(8, 7, 6)),
    "lstm": lambda: (Last(nn.LSTM(6, 8, batch_first=True, bidirectional=True)), torch.randn(8, 7, 6)),
    "embedding_bag": lambda: (
        nn.Sequential(nn.EmbeddingBag(30, 8), nn.Linear(8, 5)),
        torch.randint(30, (8, 6)),
    ),
    "embedding": lambda: (
        nn.Sequential(nn.Embedding(30, 8), nn.Flatten(), nn.Linear(48, 5)),
        torch.randint(30, (8, 6)),
    ),
    "transformer": lambda: (
        nn.Sequential(
            nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True),
            nn.Flatten(),
            nn.Linear(96, 5),
        ),
        torch.randn(8, 6, 16),
    ),
    "attention": lambda: (Attention(), torch.randn(8, 6, 16)),
    "layer_norm": lambda: (
        nn.Sequential(nn.Linear(10, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 5)),
        torch.randn(8, 10),
    ),
    "group_norm": lambda: (
        nn.Sequential(nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.Mish(), nn.Flatten(), nn.LazyLinear(5)),
        images(2),
    ),
    "instance_norm": lambda: (
        nn.Sequential(nn.Conv2d(2, 4, 3), nn.InstanceNorm2d(4, affine=True), nn.Flatten(), nn.LazyLinear(5)),
        images(2),
    ),
    "upsampling": lambda: (
        nn.Sequential(
            nn.Conv2d(1, 2, 3), nn.Upsample(scale_factor=2, mode="bilinear"), nn.Flatten(), nn.LazyLinear(5)
        ),
        images(),
    ),
    "pixel_shuffle": lambda: (
        nn.Sequential(nn.Conv2d(1, 8, 3), nn.PixelShuffle(2), nn.Flatten(), nn.LazyLinear(5)),
        images(),
    ),
    "weight_norm": lambda: (
        nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(10, 16)), nn.ReLU(), nn.Linear(16, 5)),
        torch.randn(8, 10),
    ),
}


def _classifier(name: str) -> None:
    def run() -> float:
        model, x = MODELS[name]()
        model(x)  # gives lazy layers their weights, on the CPU
        return train(model, x, labels(), F.cross_entropy)

    PROGRAMS[name] = run


for _name in MODELS:
    _classifier(_name)


LOSSES: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], Callable[[], Tensor]]] = {
    "regression": (F.mse_loss, lambda: torch.randn(8, 5)),
    "robust_regression": (F.huber_loss, lambda: torch.randn(8, 5)),
    "multi_label": (F.binary_cross_entropy_with_logits, lambda: (torch.randn(8, 5) > 0).float()),
    "hinge": (F.multi_margin_loss, labels),
    "divergence": (
        lambda out, y: F.kl_div(out.log_softmax(1), y, reduction="batchmean"),
        lambda: torch.randn(8, 5).softmax(1),
    ),
    "smoothed_labels": (lambda out, y: F.cross_entropy(out, y, label_smoothing=0.1), labels),
}


def _with_loss(name: str) -> None:
    loss_of, make_target = LOSSES[name]
    PROGRAMS[name] = lambda: train(mlp(), torch.randn(8, 10), make_target(), loss_of)


for _name in LOSSES:
    _with_loss(_name)

OPTIMIZERS = ("Adam", "AdamW", "Adagrad", "RMSprop", "NAdam", "Adamax")


def _with_optimizer(name: str) -> None:
    def run() -> float:
        model, x, y = mlp().to(device), torch.randn(8, 10).to(device), labels().to(device)
        optimizer = getattr(torch.optim, name)(model.parameters(), lr=0.01)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
        for _ in range(STEPS):
            optimizer.zero_grad(set_to_none=True)
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
        return loss.item()

    PROGRAMS[f"optimizer_{name}"] = run


for _name in OPTIMIZERS:
    _with_optimizer(_name)


def _mixed(dtype: torch.dtype) -> float:
    model, x, y = mlp().to(device), torch.randn(8, 10).to(device), labels().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler(device.type, enabled=dtype == torch.float16)
    for _ in range(STEPS):
        with torch.autocast(device.type, dtype):
            loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    return loss.item()


@program
def mixed_precision_float16() -> float:
    return _mixed(torch.float16)


@program
def mixed_precision_bfloat16() -> float:
    return _mixed(torch.bfloat16)


@program
def data_loader() -> float:
    data = TensorDataset(torch.randn(24, 10), labels(24))
    model = mlp().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in DataLoader(data, batch_size=8, pin_memory=device.type == "cuda"):
        loss = F.cross_entropy(model(x.to(device, non_blocking=True)), y.to(device, non_blocking=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


@program
def activation_checkpointing() -> float:
    body, head = nn.Sequential(nn.Linear(10, 16), nn.ReLU()), nn.Linear(16, 5)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = body, head

        def forward(self, x: Tensor) -> Tensor:
            return self.head(checkpoint(self.body, x, use_reentrant=False))

    return train(Model(), torch.randn(8, 10), labels(), F.cross_entropy)


@program
def gradient_accumulation() -> float:
    model = mlp().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    total = 0.0
    for part in torch.randn(4, 8, 10):
        loss = F.cross_entropy(model(part.to(device)), labels().to(device)) / 4
        loss.backward()
        total += loss.item()
    optimizer.step()
    return total


@program
def save_and_load() -> float:
    model = mlp().to(device)
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    again = mlp().to(device)
    again.load_state_dict(torch.load(file, map_location=device))
    return train(again, torch.randn(8, 10), labels(), F.cross_entropy)


@program
def autoencoder() -> float:
    x = torch.rand(8, 10)
    model = nn.Sequential(nn.Linear(10, 4), nn.Tanh(), nn.Linear(4, 10), nn.Sigmoid())
    return train(model, x, x, F.binary_cross_entropy)


@program
def generative_adversary() -> float:
    maker, judge = nn.Linear(4, 10).to(device), mlp(out=1).to(device)
    noise, real = torch.randn(8, 4).to(device), torch.randn(8, 10).to(device)
    one, zero = torch.ones(8, 1, device=device), torch.zeros(8, 1, device=device)
    optimizers = [torch.optim.SGD(net.parameters(), lr=0.05) for net in (maker, judge)]
    for _ in range(STEPS):
        of_judge = F.binary_cross_entropy_with_logits(judge(real), one)
        of_judge = of_judge + F.binary_cross_entropy_with_logits(judge(maker(noise).detach()), zero)
        of_maker = F.binary_cross_entropy_with_logits(judge(maker(noise)), one)
        for optimizer, loss in zip(optimizers[::-1], (of_judge, of_maker), strict=True):
            optimizer.zero_grad()
            loss.backward(retain_graph=True, inputs=[*optimizer.param_groups[0]["params"]])
        for optimizer in optimizers:
            optimizer.step()
    return of_maker.item()


@program
def policy_gradient() -> float:
    model, states = mlp(out=3), torch.randn(20, 10)
    actions, returns = torch.arange(20) % 3, torch.linspace(-1, 1, 20)

    def loss_of(out: Tensor, returns: Tensor) -> Tensor:
        chosen = out.log_softmax(1).gather(1, actions.to(device)[:, None])[:, 0]
        return -(chosen * returns).mean()

    return train(model, states, returns, loss_of)


@program
def functional_gradients() -> float:
    weight, x = torch.randn(10, 5).to(device), torch.randn(8, 10).to(device)

    def loss_of(weight: Tensor, row: Tensor) -> Tensor:
        return (row @ weight).square().sum()

    each = torch.func.vmap(torch.func.grad(loss_of), in_dims=(None, 0))(weight, x)
    return each.norm().item()


@program
def style_of_grams() -> float:
    features = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).to(device)
    style = images(3).to(device)
    image = torch.zeros_like(style, requires_grad=True)

    def gram(maps: Tensor) -> Tensor:
        flat = maps.flatten(2)
        return flat @ flat.mT / flat.shape[-1]

    optimizer = torch.optim.LBFGS([image], max_iter=3)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(gram(features(image)), gram(features(style)).detach())
        loss.backward()
        return loss

    return float(optimizer.step(closure))


@program
def spatial_transformer() -> float:
    angles = torch.tensor([[1.0, 0.1, 0.0], [-0.1, 1.0, 0.0]])
    x = images().to(device)
    grid = F.affine_grid(angles.to(device).expand(8, 2, 3), list(x.shape), align_corners=False)
    warped = F.grid_sample(x, grid, align_corners=False)
    return warped.square().mean().item()


@program
def sequence_to_sequence() -> float:
    embed, encoder = nn.Embedding(20, 8).to(device), nn.GRU(8, 8).to(device)
    decoder, head = nn.GRU(8, 8).to(device), nn.Linear(8, 20).to(device)
    source, target = torch.randint(20, (6, 4)).to(device), torch.randint(20, (5, 4)).to(device)
    modules = nn.ModuleList([embed, encoder, decoder, head])
    optimizer = torch.optim.SGD(modules.parameters(), lr=0.1)
    for _ in range(STEPS):
        _, state = encoder(embed(source))
        out, _ = decoder(embed(target[:-1]), state)
        loss = F.nll_loss(head(out).log_softmax(-1).flatten(0, 1), target[1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


@program
def packed_sequences() -> float:
    layer, head = nn.LSTM(4, 8).to(device), nn.Linear(8, 1).to(device)
    padded, lengths = torch.randn(6, 3, 4).to(device), torch.tensor([6, 4, 2])
    packed = nn.utils.rnn.pack_padded_sequence(padded, lengths)
    out, _ = nn.utils.rnn.pad_packed_sequence(layer(packed)[0])
    loss = head(out).square().mean()
    loss.backward()
    return loss.item()


@program
def physics_of_a_string() -> float:
    net = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1)).to(device)
    x = torch.linspace(0, 1, 10)[:, None].to(device).requires_grad_()
    u = net(x)
    first = torch.autograd.grad(u.sum(), x, create_graph=True)[0]
    second = torch.autograd.grad(first.sum(), x, create_graph=True)[0]
    loss = (second + u).square().mean()
    loss.backward()
    return loss.item()


@program
def ctc() -> float:
    scores = torch.randn(10, 4, 6).to(device).log_softmax(2)
    targets = torch.randint(1, 6, (4, 3)).to(device)
    return F.ctc_loss(scores, targets, torch.full((4,), 10), torch.full((4,), 3)).item()


def main() -> None:
    wanted = sys.argv[1:] or list(PROGRAMS)
    losses = {}
    for name in wanted:
        torch.manual_seed(0)
        losses[name] = PROGRAMS[name]()
    print(json.dumps({"device": device.type, "losses": losses}))


if __name__ == "__main__":
    main()
