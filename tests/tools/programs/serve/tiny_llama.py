"""Plans to serve a tiny Llama in both ways; is given a folder for the model and its trace."""

import ast
import json
import sys
from pathlib import Path

from torch_loom.tools import serve
from torch_loom.tools.serve.report import page

folder = Path(ast.literal_eval(sys.argv[1]))
sizes = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "vocab_size": 1000}
heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 4096}
(folder / "config.json").write_text(json.dumps({"model_type": "llama", **sizes, **heads}), encoding="utf-8")
trace = folder / "requests.jsonl"
trace.write_text('{"prompt_tokens": 300, "new_tokens": 20}\n' * 4, encoding="utf-8")

common = {"trace": trace, "chip": "h100", "memory": None, "dtype": "float16", "max_batch": None}
found = {}
for schedule, graphs in (("continuous", False), ("loop", False), ("continuous", True)):
    options = {**common, "schedule": schedule, "graphs": graphs}
    found[schedule, graphs] = serve.plan(str(folder), options)

one, by_one, graphed = found.values()
for each in found.values():
    assert (each["requests"], each["prompt_tokens"], each["new_tokens"]) == (4, 1200, 80)
    # Keys and values of 2 heads of 64 in 2 layers.
    assert each["memory"]["token_bytes"] == 2 * 2 * 2 * 64 * 2, each["memory"]
    attention, mlp = 256 * 256 * 2 + 256 * 128 * 2, 3 * 256 * 512
    assert each["memory"]["weight_bytes"] == 2 * (2 * 1000 * 256 + 2 * (attention + mlp + 2 * 256) + 256)
    times = each["times"]
    assert 0 < times["token_seconds"]["p50"] < times["first_token_seconds"]["p99"] < each["seconds"]
    assert page(each).startswith("<!doctype html>")
# All four run together, or one after the other: the host issues four times as much.
assert 3 < by_one["seconds"] / one["seconds"] < 5
assert by_one["peak_requests"] == 1
# Kernels of so small a model end before the host has issued the next.
assert graphed["seconds"] < 0.5 * one["seconds"]
