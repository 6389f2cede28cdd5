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


def _flag(is_set: bool) -> str | None:
    return "1" if is_set else None


@app.command(
    name="run",
    context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True},
)
def run_program(
    program: Annotated[
        list[str],
        typer.Argument(help="SCRIPT.py, -m MODULE, or -- COMMAND; with its arguments."),
    ],
    chip: Annotated[str | None, typer.Option(help="The chip that the devices are. [default: h200]")] = None,
    devices: Annotated[str | None, typer.Option(help="How many devices there are.")] = None,
    memory: Annotated[str | None, typer.Option(help="Memory of each device, as in 16GiB.")] = None,
    launch: Annotated[str | None, typer.Option(help="auto, blocking or chaos.")] = None,
    sanitize: Annotated[bool, typer.Option("--sanitize", help="Report races between streams.")] = False,
    protect: Annotated[bool, typer.Option("--protect", help="Host access to device memory faults.")] = False,
) -> None:
    """Run a program whose `cuda` devices are virtual ones, unchanged and without a GPU."""
    from torch_loom.tools.launch import run

    run(
        program,
        values={
            "chip": chip,
            "devices": devices,
            "memory": memory,
            "launch": launch,
            "sanitizer": _flag(sanitize),
            "protect": _flag(protect),
        },
    )


def main() -> None:
    """Runs the command line."""
    app(prog_name="loom")


if __name__ == "__main__":
    main()
