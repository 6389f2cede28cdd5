"""The netlist: a plan as YAML, in PyBuda's sections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml


def text(plan: Mapping[str, Any]) -> str:
    """Return a plan as YAML."""
    shown: str = yaml.safe_dump(data(plan), sort_keys=False, width=110, default_flow_style=None)
    return shown


def data(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sections ``devices``, ``queues``, ``graphs``, ``programs`` and ``fused_ops``."""
    rows, columns = plan["grid"]
    producers: dict[str, list[str]] = {}
    for producer, consumer, _ in plan["edges"]:
        producers.setdefault(consumer, []).append(producer)
    for queue in plan["queues"]:
        if queue["kind"] in ("input", "parameter"):
            for reader in queue["consumers"]:
                producers.setdefault(reader, []).append(queue["name"])
    options = plan["options"]
    graphs = {f"epoch_{epoch['index']}": _graph(epoch, producers) for epoch in plan["epochs"]}
    return {
        "devices": {
            "arch": plan["chip"],
            "count": plan["num_chips"],
            "grid_size": [rows, columns],
            "l1_bytes": plan["sram_bytes"],
            **({"harvested_rows": plan["harvested_rows"]} if plan["harvested_rows"] else {}),
            **({"options": options} if options else {}),
        },
        "queues": {queue["name"]: _queue(queue) for queue in plan["queues"] if queue["place"] != "sram"},
        "graphs": graphs,
        "programs": [{"run_fwd": _program(plan)}],
        "fused_ops": {
            op["name"]: {"inputs": len(producers.get(op["name"], [])), "schedules": [op["parts"]]}
            for epoch in plan["epochs"]
            for op in epoch["ops"]
            if len(op["parts"]) > 1
        },
    }


def _queue(queue: Mapping[str, Any]) -> dict[str, Any]:
    shown = {
        "input": queue["producer"] or "HOST",
        "type": "ram" if queue["kind"] == "parameter" else "queue",
        "entries": queue["entries"],
        "bytes": queue["bytes"],
        "target_device": queue["chip"],
        "loc": queue["place"],
    }
    if queue.get("layout"):
        shown["layout"] = queue["layout"]
    if queue["place"] == "dram":
        shown["dram"] = [[queue["channel"], queue["address"]]]
    return shown


def _graph(epoch: Mapping[str, Any], producers: Mapping[str, list[str]]) -> dict[str, Any]:
    shown: dict[str, Any] = {"target_device": epoch["chip"], "input_count": 1}
    for op in epoch["ops"]:
        shown[op["name"]] = {
            "type": op["type"],
            "grid_loc": op["grid_loc"],
            "grid_size": op["grid_size"],
            **({"grid_transpose": True} if op["transposed"] else {}),
            "inputs": producers.get(op["name"], []),
            "out_df": op["format"],
            **({"acc_df": op["accumulate"]} if op["accumulate"] else {}),
            **({"math_fidelity": op["fidelity"]} if op["fidelity"] else {}),
            "t": op["t"],
            "buf_bytes": op["sram_bytes"],
            "predicted_cycles": round(op["cycles"]),
        }
    return shown


def _program(plan: Mapping[str, Any]) -> list[Any]:
    steps: list[Any] = [{"staticvar": {"$p_loop_count": 1}}, {"loop": "$p_loop_count"}]
    for epoch in plan["epochs"]:
        names = {op["name"] for op in epoch["ops"]}
        own = [
            queue["name"]
            for queue in plan["queues"]
            if queue["place"] != "sram" and (queue["producer"] in names or names & set(queue["consumers"]))
        ]
        steps.append({"execute": {"graph_name": f"epoch_{epoch['index']}", "queue_settings": own}})
    return [*steps, "endloop"]
