"""The `loom` command. Its sub-commands live in files of their own and are imported when they run."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(
    help="torch-loom: a virtual NPU for PyTorch.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.command()
def demo(
    device: Annotated[str | None, typer.Option(help="Device to train on. [default: device 0]")] = None,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the training digits.")] = 60,
    seed: Annotated[int, typer.Option(min=0, help="Seed of weights and batches.")] = 0,
) -> None:
    """Train a small vision transformer on real handwritten digits and check it against the CPU."""
    from torch_loom.tools.demo import run

    run(device, epochs, seed)


@app.command()
def env() -> None:
    """List every environment variable with type, default, current value and meaning."""
    from torch_loom.tools.env import run

    run()


def main() -> None:
    """Runs the command line."""
    app(prog_name="loom")


if __name__ == "__main__":
    main()
