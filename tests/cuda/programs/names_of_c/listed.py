import ast
import pathlib
import re

import torch

OURS = re.compile(r"_\w*(?:[cC]uda|CUDA|cudnn|nccl|cufft)\w*")
folder = pathlib.Path(torch.__file__).parent


def stubs():
    return ast.parse((folder / "_C" / "__init__.pyi").read_text()).body


def listed():
    names = {node.name for node in stubs() if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    return {name for name in names if OURS.fullmatch(name)}


def used():
    names = set()
    for file in ("cuda", "backends", "_inductor", "_dynamo", "accelerator", "utils", "distributed", "nn"):
        for path in (folder / file).rglob("*.py"):
            text = path.read_text()
            names |= set(re.findall(r"torch\._C\.(\w+)", text))
            for block in re.findall(r"from torch\._C import (\([^)]*\)|.*)", text):
                names |= set(re.findall(r"\w+", block))
    return {name for name in names if OURS.fullmatch(name)}
