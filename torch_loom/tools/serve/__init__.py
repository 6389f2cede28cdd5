"""`loom plan --serve`: how fast a chip would serve a trace of requests with a language model.

The model runs in a dry run, once for each size of a step; the schedule of requests is simulated with the
times that these steps take.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SCHEDULES = ("continuous", "loop")


def run(model: str, options: dict[str, Any]) -> int:
    """Plan the serving of a trace, print it and write it; return 3 where memory runs out.

    Args:
        model: a folder with the model's ``config.json``, or that file.
        options: ``trace``, ``chip``, ``memory``, ``schedule``, ``max_batch``, ``dtype``, ``graphs``, ``json``
            and ``html`` of the command.

    Raises:
        ConfigurationError: the model, the trace or an option cannot be used.
    """
    import torch

    from torch_loom.tools import console
    from torch_loom.tools.serve import report

    console.check_folders(options["json"], options["html"])
    try:
        found = plan(model, options)
    except torch.OutOfMemoryError as error:
        console.show_error(f"out of memory: {error}")
        return 3
    report.show(found)
    for key, content in (("json", json.dumps(found, indent=1) + "\n"), ("html", report.page(found))):
        if options[key]:
            try:
                Path(options[key]).write_text(content, encoding="utf-8")
            except OSError as error:
                console.fail(f"{options[key]}: cannot be written: {error}")
            console.out.print(f"{key}: {options[key]}", highlight=False)
    return 0


def plan(model: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return what :func:`torch_loom.tools.serve.report.summary` says of a trace.

    Raises:
        ConfigurationError: as :func:`run`.
        torch.OutOfMemoryError: the model, or a step, does not fit.
    """
    import torch

    from torch_loom import config, device
    from torch_loom.errors import ConfigurationError
    from torch_loom.tools.serve import report, requests, schedule, steps

    if options["schedule"] not in SCHEDULES:
        raise ConfigurationError(f"schedule = {options['schedule']!r:.100}. Allowed: {', '.join(SCHEDULES)}.")
    name = config.device_name()
    # What is wrong with the trace is said before the model is built; its context after.
    requests.read(Path(options["trace"]))
    with (
        torch.no_grad(),
        # The host issues replayed ops in no time.
        config.exported({"host_issue": "0"} if options["graphs"] else {}),
        device.dry_run(chip=str(options["chip"]), devices=1, memory=options["memory"]) as made,
    ):
        built, context = steps.model_of(model, options["dtype"], name)
        trace = requests.read(Path(options["trace"]), context)

        def clock() -> float:
            device.synchronize()
            return device.clock()

        timed = steps.Steps(built, name, clock)
        memory = steps.memory_of(built, timed.token_bytes(), made.capacity_bytes(0))
        most = options["max_batch"]
        if options["schedule"] == "continuous":
            outcome = schedule.continuous(
                trace, timed.seconds, memory.cache_tokens, most or schedule.BATCH_REQUESTS
            )
        else:
            outcome = schedule.loop(trace, timed.seconds, memory.cache_tokens, most or 1)
    how = options["schedule"] + (", steps in CUDA graphs" if options["graphs"] else "")
    return report.summary(model, str(options["chip"]), how, outcome, memory)
