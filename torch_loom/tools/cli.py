"""The `loom` command. Its sub-commands live in files of their own and are imported when they run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

# What sub-commands take that are about a chip of no particular kind.
DEFAULT_CHIP = "h200"

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _show_version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version

        typer.echo(f"loom {version('torch-loom')}")
        raise typer.Exit


@app.callback()
def loom(
    is_version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and end."),
    ] = False,
) -> None:
    """torch-loom: a virtual accelerator for PyTorch."""


@app.command()
def demo(
    device: Annotated[str | None, typer.Option(help="Device to train on.", show_default="device 0")] = None,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the training digits.")] = 60,
    seed: Annotated[int, typer.Option(min=0, help="Seed of weights and batches.")] = 0,
) -> None:
    """Train a small vision transformer on real handwritten digits and check it against the CPU."""
    from torch_loom.tools.demo import run

    run(device, epochs, seed)


@app.command()
def env(
    is_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """List every environment variable with type, default, current value and meaning."""
    from torch_loom.tools.env import run

    run(is_json)


@app.command()
def doctor(
    is_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    asks_libraries: Annotated[
        bool, typer.Option("--libraries/--no-libraries", help="Ask installed libraries what they choose.")
    ] = True,
) -> None:
    """Say what is installed, whether it fits, and what to do next; exit status 1 if something is wrong."""
    from torch_loom.tools.doctor import run

    run(is_json=is_json, asks_libraries=asks_libraries)


chips_app = typer.Typer(help="List, show, check, fit and measure chips.", invoke_without_command=True)
app.add_typer(chips_app, name="chips")


@chips_app.callback()
def chips(context: typer.Context) -> None:
    """List the shipped chips by vendor and architecture; the sub-commands say more of one."""
    if context.invoked_subcommand is None:
        from torch_loom.tools.chips import list_chips

        list_chips()


@chips_app.command("list")
def chips_list() -> None:
    """List the shipped chips by vendor and architecture."""
    from torch_loom.tools.chips import list_chips

    list_chips()


@chips_app.command("show")
def chips_show(name: Annotated[str, typer.Argument(help="Name or description (.toml) of a chip.")]) -> None:
    """Describe a chip: figures, where they come from, and its roofline."""
    from torch_loom.tools.chips import show

    show(name)


@chips_app.command("check")
def chips_check(file: Annotated[Path, typer.Argument(help="A description, a .toml file.")]) -> None:
    """Check a description: exit status 1 and what is wrong, or what lacks a source."""
    from torch_loom.tools.chips import check

    check(file)


@chips_app.command("fit")
def chips_fit(
    sweep: Annotated[Path, typer.Argument(help="Timings of ops, as `loom chips measure` writes them.")],
    out: Annotated[Path, typer.Option(help="Where to write the description.")],
    base: Annotated[
        str,
        typer.Option(
            help="The chip that keeps what the timings do not tell; of collectives, the topology or the chip."
        ),
    ] = DEFAULT_CHIP,
    name: Annotated[
        str | None, typer.Option(help="Name of the new description.", show_default="that of the base")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Where to write the error of each row: .json or .csv.")
    ] = None,
) -> None:
    """Fit efficiency curves, or protocols of collectives; print what tells each figure, and the errors."""
    from torch_loom.tools.chips import fit

    fit(sweep, base, out, name, report)


@chips_app.command("measure")
def chips_measure(
    out: Annotated[Path, typer.Option(help="Where to write the sweep.")],
    device: Annotated[str, typer.Option(help="The device to time.")] = "cuda",
    quick: Annotated[bool, typer.Option(help="A few small shapes of each op.")] = False,
) -> None:
    """Time ops on a GPU of this machine; torch_loom/chips/measure.py alone does the same elsewhere."""
    from torch_loom.chips.measure import run

    raise SystemExit(run(str(out), device, quick))


def _flag(is_set: bool) -> str | None:
    return "1" if is_set else None


@app.command(
    name="run",
    context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True},
)
def run_program(
    context: typer.Context,
    program: Annotated[
        list[str],
        typer.Argument(help="SCRIPT.py, -m MODULE, or -- COMMAND; with its arguments."),
    ],
    chip: Annotated[
        str | None, typer.Option(help="The chip that the devices are.", show_default=DEFAULT_CHIP)
    ] = None,
    devices: Annotated[
        str | None,
        typer.Option(
            help="How many devices there are.", show_default="1; under torchrun one for each local rank"
        ),
    ] = None,
    memory: Annotated[
        str | None, typer.Option(help="Memory of each device, as in 16GiB.", show_default="the chip's")
    ] = None,
    launch: Annotated[str | None, typer.Option(help="auto, blocking or chaos.", show_default="auto")] = None,
    sanitize: Annotated[
        bool, typer.Option("--sanitize", help="Report races between streams and in kernels.")
    ] = False,
    protect: Annotated[bool, typer.Option("--protect", help="Host access to device memory faults.")] = False,
    local_ranks: Annotated[
        int | None,
        typer.Option(help="Run the program as so many ranks of a group, as torchrun would.", min=1, max=64),
    ] = None,
) -> None:
    """Run a program whose `cuda` devices are virtual ones, unchanged and without a GPU."""
    from torch_loom.tools import misplaced
    from torch_loom.tools.launch import run

    misplaced.warn(context, program)
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
        local_ranks=local_ranks,
    )


@app.command(
    name="kernels",
    context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True},
)
def list_kernels(
    context: typer.Context,
    program: Annotated[list[str], typer.Argument(help="SCRIPT.py or -m MODULE, with its arguments.")],
    chip: Annotated[
        str | None, typer.Option(help="The chip that the devices are.", show_default=DEFAULT_CHIP)
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="Where to write a page with sources and generated code.")
    ] = None,
    sanitize: Annotated[
        bool, typer.Option("--sanitize", help="Report races between streams and in kernels.")
    ] = False,
) -> None:
    """Run a program and list its own kernels: launches, time, bytes, occupancy, checks."""
    from torch_loom.tools import misplaced
    from torch_loom.tools.kernels import run

    misplaced.warn(context, program)
    raise typer.Exit(run(program, {"chip": chip, "sanitizer": _flag(sanitize)}, html))


@app.command(name="compile")
def compile_model(
    model: Annotated[
        Path,
        typer.Argument(
            help="A script that defines `model` and `inputs`, or functions that return them; or an ONNX file."
        ),
    ],
    chip: Annotated[
        str | None,
        typer.Option(
            help="Name or description (.toml) of the chip, or a board: n150, n300, galaxy, p150, e150, e300.",
            show_default=DEFAULT_CHIP,
        ),
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Where to write the plan as a page (.html).")] = None,
    out: Annotated[Path | None, typer.Option(help="Where to write the image, for `loom run-image`.")] = None,
    netlist: Annotated[Path | None, typer.Option(help="Where to write the plan as YAML.")] = None,
    inputs: Annotated[
        Path | None,
        typer.Option(help="Sample inputs (.safetensors) by the names of the model's arguments."),
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option(help="Option of the compiler, NAME=VALUE; may be repeated.")
    ] = None,
) -> None:
    """Compile a model for a chip: say what it would take there, draw the plan, write an image."""
    from torch_loom.tools.compile import run

    run(
        model,
        chip=chip,
        default_chip=DEFAULT_CHIP,
        report=report,
        out=out,
        netlist=netlist,
        inputs=inputs,
        options=option or (),
    )


@app.command()
def numerics(
    model: Annotated[
        Path,
        typer.Argument(
            help="A script that defines `model` and `inputs`, or functions that return them; or an ONNX file."
        ),
    ],
    formats: Annotated[
        list[str], typer.Option("--format", help="A data format, as NVFP4 or Bfp8_b; may be repeated.")
    ],
    inputs: Annotated[
        Path | None,
        typer.Option(help="Sample inputs (.safetensors) by the names of the model's arguments."),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Where to write all layers (.html, .json, or text).")
    ] = None,
    is_exact: Annotated[
        bool, typer.Option("--exact", help="Sum products as the chips do, to the bit; slower.")
    ] = False,
) -> None:
    """Say what data formats do to a model: the error of each layer and of the output against float32."""
    from torch_loom.tools.numerics import run

    run(model, formats, inputs, report, "silicon" if is_exact else "fast")


@app.command(name="run-image")
def run_image(
    image: Annotated[Path, typer.Argument(help="An image, as `loom compile --out` writes it.")],
    inputs: Annotated[
        Path | None, typer.Option(help="Tensors (.safetensors) by the names of the inputs.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Where to write the outputs (.safetensors).")] = None,
    device: Annotated[str | None, typer.Option(help="Where to run it.", show_default="device 0")] = None,
    repeat: Annotated[int, typer.Option(min=1, help="How many times to run it.")] = 1,
) -> None:
    """Run a compiled model from its file; the compiler is not needed."""
    from torch_loom.tools.run_image import run

    run(image, inputs, out, device, repeat)


@app.command()
def smi(
    is_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    loop: Annotated[
        float | None, typer.Option("--loop", "-l", min=0.1, help="Print again every so many seconds.")
    ] = None,
) -> None:
    """Show devices, memory, utilisation and processes, as nvidia-smi does."""
    from torch_loom.tools.smi import run

    run(is_json, loop)


@app.command(
    name="plan",
    context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True},
)
def plan_script(
    context: typer.Context,
    script: Annotated[list[str] | None, typer.Argument(help="SCRIPT.py, with its arguments.")] = None,
    chip: Annotated[
        str | None,
        typer.Option(
            help="Name or description of the chip.", show_default=f"the topology's, else {DEFAULT_CHIP}"
        ),
    ] = None,
    devices: Annotated[int, typer.Option(help="How many devices there are.", min=1, max=64)] = 1,
    memory: Annotated[str | None, typer.Option(help="Memory of each device, as in 16GiB.")] = None,
    world_size: Annotated[
        int | None,
        typer.Option(help="Ranks of a process group, one of which the script is.", min=1, max=1 << 16),
    ] = None,
    rank: Annotated[int, typer.Option(help="Which of them.", min=0)] = 0,
    topology: Annotated[
        str | None, typer.Option(help="The cluster of the ranks.", show_default="the chip's")
    ] = None,
    steps: Annotated[int, typer.Option(help="After how many training steps to stop.", min=1)] = 3,
    json: Annotated[Path | None, typer.Option(help="Where to write the plan as JSON.")] = None,
    html: Annotated[Path | None, typer.Option(help="Where to write the plan as a page.")] = None,
    serve: Annotated[
        str | None, typer.Option(help="Instead of a script: a folder with a language model's config.json.")
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(help="Requests to serve, JSON lines: prompt_tokens, new_tokens, arrival.")
    ] = None,
    schedule: Annotated[str, typer.Option(help="Of requests: continuous or loop.")] = "continuous",
    max_batch: Annotated[
        int | None,
        typer.Option(help="Requests at a time.", min=1, max=1 << 16, show_default="1024; 1 in a loop"),
    ] = None,
    dtype: Annotated[str, typer.Option(help="Of the weights that are served.")] = "bfloat16",
    graphs: Annotated[
        bool, typer.Option("--graphs", help="Steps of serving are replayed CUDA graphs.")
    ] = False,
) -> None:
    """Plan a training script, or serving: memory and time, without the chip. Exit status 3: out of memory."""
    from torch_loom.tools import console, misplaced
    from torch_loom.tools import serve as serving
    from torch_loom.tools.plan import run

    if serve is not None:
        if script or trace is None:
            console.fail("loom plan --serve MODEL takes --trace FILE, and no script", 2)
        values = {"schedule": schedule, "max_batch": max_batch, "dtype": dtype, "graphs": graphs}
        files = {"trace": trace, "json": json, "html": html}
        raise typer.Exit(
            serving.run(serve, {"chip": chip or DEFAULT_CHIP, "memory": memory, **values, **files})
        )
    if not script:
        console.fail("loom plan takes a script, or --serve MODEL --trace FILE", 2)
    misplaced.warn(context, script)
    run(
        script,
        {
            "chip": chip,
            "default_chip": DEFAULT_CHIP,
            "devices": devices,
            "memory": memory,
            "world_size": world_size,
            "rank": rank,
            "topology": topology,
            "steps": steps,
            "json": None if json is None else str(json),
            "html": None if html is None else str(html),
        },
    )


def main() -> None:
    """Runs the command line. What the user can mend is one sentence; anything else is a fault of ours."""
    from torch_loom.errors import LoomError
    from torch_loom.tools import console

    try:
        app(prog_name="loom")
    except LoomError as error:
        console.fail(error)


if __name__ == "__main__":
    main()
