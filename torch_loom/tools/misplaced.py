"""Options of ours that stand behind the program and so go to it, without a word."""

from __future__ import annotations

from collections.abc import Sequence

from torch_loom.tools import console

__all__ = ["warn"]


def warn(command: str, program: Sequence[str], text: str = "") -> None:
    """Say on standard error which options of a command stand behind the program.

    Args:
        command: the sub-command: ``"run"``, ``"plan"``.
        program: what it starts, with its arguments.
        text: of the program, where it is a file: an option that is named there is the program's own.
    """
    own = _options_of(command)
    found = dict.fromkeys(argument.partition("=")[0] for argument in program[1:])
    taken = [option for option in found if option in own and option not in text]
    if taken:
        console.show_warning(
            f"{', '.join(taken)} stands after {program[0]} and goes to it; options of `loom {command}` stand "
            "before it"
        )


def _options_of(command: str) -> set[str]:
    import typer

    from torch_loom.tools.cli import app

    commands = typer.main.get_group(app).commands
    options = {option for parameter in commands[command].params for option in parameter.opts}
    return {option for option in options if option.startswith("--")}
