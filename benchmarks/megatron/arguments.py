"""What a case of Megatron-LM's functional tests trains, from its arguments; facts of its defaults, no code.

Cases that a plan cannot be made for from what is here are refused with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

WORLD_SIZE = 8
"""One node of eight devices, on which these tests run unless a case says otherwise."""
# Tokens of the vocabularies that the families are tested with, before padding.
VOCABULARIES = {"gpt": 50_257, "bert": 30_522, "t5": 28_996}
DROPOUT = 0.1
# What this does not build, by the argument that asks for it.
_NOT_BUILT = {
    "num-experts": "experts",
    "multi-latent-attention": "latent attention",
    "data-parallel-sharding-strategy": "Megatron's own FSDP",
    "normalization": "other norms",
    "use-packed-sequence": "packed sequences",
    "defer-embedding-wgrad-compute": "products put off",
    "dataloader-seq-length": "packed sequences",
}


class UnplannedError(ValueError):
    """The arguments do not say what a model of these families is; the message says what is missing."""


@dataclass(frozen=True)
class Arguments:
    """A model, how it is sharded, and how it is trained. Sizes are those before sharding, unless said."""

    family: str
    num_layers: int
    num_decoder_layers: int  # of T5, 0 elsewhere
    hidden: int
    heads: int
    groups: int  # heads of keys and values
    ffn: int
    length: int  # tokens of a sequence
    decoder_length: int
    positions: int  # learned embeddings of positions, 0: rotary
    vocabulary: int  # padded
    micro_batch: int
    num_microbatches: int
    tensor: int
    pipeline: int
    context: int
    data: int
    chunk_layers: tuple[tuple[int, ...], ...]  # of each chunk of each stage
    microbatch_group: int
    sequence_parallel: bool
    optimizer_shards: int  # 0: each rank has all of it
    dtype: torch.dtype
    hidden_dropout: float
    attention_dropout: float
    attention: str  # "unfused", "flash"
    is_local: bool  # Megatron's own layers, not Transformer Engine's
    has_bias: bool
    is_gated: bool
    is_tied: bool
    recomputes: bool
    normalises_heads: bool
    fuses_loss: bool
    is_deterministic: bool
    checks: bool  # the host looks for NaN and infinity in losses and gradients

    @property
    def num_chunks(self) -> int:
        """Of the layers of a stage."""
        return len(self.chunk_layers[0])


def read(case: str, hardware: str, given: Mapping[str, str]) -> Arguments:
    """Return what a case trains.

    Raises:
        UnplannedError: the arguments do not say it, or it is not built here.
    """
    family = case.partition("/")[0]
    if family not in VOCABULARIES:
        raise UnplannedError(f"a model of the family {family}")
    if case.endswith("_release"):
        raise UnplannedError("nodes whose number is not said")  # releases are tested on several
    for name, what in _NOT_BUILT.items():
        if name in given:
            raise UnplannedError(what)
    if any("moe" in name for name in given):
        raise UnplannedError("experts")
    if "global-batch-size" not in given:
        raise UnplannedError("no global batch size")
    try:
        return _arguments(case, hardware, given)
    except KeyError as error:
        raise UnplannedError(f"no argument {error.args[0]}") from None


def _arguments(case: str, hardware: str, given: Mapping[str, str]) -> Arguments:
    def number(name: str, otherwise: int | None = None) -> int:
        return int(given[name] if otherwise is None else given.get(name, otherwise))

    def has(name: str) -> bool:
        return given.get(name) == "true"

    family = case.partition("/")[0]
    # Not among the arguments that are published: the names of cases say these.
    is_deterministic, fuses_loss = "nondeterministic" not in case, "cross_entropy_loss_fusion" in case
    is_t5 = family == "t5"
    num_layers = number("encoder-num-layers" if is_t5 else "num-layers")
    hidden, heads = number("hidden-size"), number("num-attention-heads")
    tensor, pipeline = number("tensor-model-parallel-size", 1), number("pipeline-model-parallel-size", 1)
    context = number("context-parallel-size", 1)
    if WORLD_SIZE % (tensor * pipeline * context):
        raise UnplannedError(f"more than {WORLD_SIZE} ranks")
    data = WORLD_SIZE // (tensor * pipeline * context)
    micro_batch = number("micro-batch-size")
    is_local = "local" in (given.get("transformer-impl"), given.get("attention-backend"))
    return Arguments(
        family=family,
        num_layers=num_layers,
        num_decoder_layers=number("decoder-num-layers") if is_t5 else 0,
        hidden=hidden,
        heads=heads,
        groups=number("num-query-groups", heads) if has("group-query-attention") else heads,
        # Where two products go in, each has two thirds of the width, in steps of 64.
        ffn=number("ffn-hidden-size", 8 * hidden // 3 // 64 * 64 if has("swiglu") else 4 * hidden),
        length=number("encoder-seq-length" if is_t5 else "seq-length"),
        decoder_length=number("decoder-seq-length") if is_t5 else 0,
        positions=0 if given.get("position-embedding-type") == "rope" else number("max-position-embeddings"),
        vocabulary=_padded(
            number("vocab-size", VOCABULARIES[family] + number("vocab-extra-ids", 0)),
            number("make-vocab-size-divisible-by", 128) * tensor,
        ),
        micro_batch=micro_batch,
        num_microbatches=number("global-batch-size") // (micro_batch * data),
        tensor=tensor,
        pipeline=pipeline,
        context=context,
        data=data,
        chunk_layers=_chunk_layers(num_layers, pipeline, given),
        microbatch_group=number("microbatch-group-size-per-virtual-pipeline-stage", pipeline),
        sequence_parallel=has("sequence-parallel") and tensor > 1,
        optimizer_shards=data * context // number("num-distributed-optimizer-instances", 1)
        if has("use-distributed-optimizer")
        else 0,
        dtype=torch.float16 if has("fp16") else torch.bfloat16,
        hidden_dropout=float(given.get("hidden-dropout", DROPOUT)),
        attention_dropout=float(given.get("attention-dropout", DROPOUT)),
        attention=_attention(hardware, given, is_local, is_deterministic),
        is_local=is_local,
        has_bias=not has("disable-bias-linear"),
        is_gated=has("swiglu"),
        is_tied=not has("untie-embeddings-and-output-weights"),
        recomputes=given.get("recompute-granularity") == "full",
        normalises_heads=has("qk-layernorm"),
        fuses_loss=fuses_loss,
        is_deterministic=is_deterministic,
        # With float16 and a loss scale of its own they tell it that the scale is too large.
        checks=not (has("fp16") and "loss-scale" not in given)
        and not has("no-check-for-nan-in-loss-and-grad"),
    )


def _padded(size: int, multiple: int) -> int:
    return math.ceil(size / multiple) * multiple


def _attention(hardware: str, given: Mapping[str, str], is_local: bool, is_deterministic: bool) -> str:
    """Return how attention is computed where products are to be reproducible.

    The older of the two containers has a flash attention without a reproducible gradient, so that Transformer
    Engine takes plain products there; its rows carry the hardware's name in one word.
    """
    named = given.get("attention-backend", "auto")
    if named in ("unfused", "local") or is_local:
        return "unfused"
    is_older = "_" not in hardware
    return "unfused" if named == "auto" and is_older and is_deterministic else "flash"


def _chunk_layers(num_layers: int, pipeline: int, given: Mapping[str, str]) -> tuple[tuple[int, ...], ...]:
    per_chunk = int(given.get("num-layers-per-virtual-pipeline-stage", 0))
    if given.get("account-for-embedding-in-pipeline-split") == "true":
        # Embedding and loss count as a layer each, and a chunk has one layer.
        chunks = (num_layers + 2) // pipeline
        layers = [[1] * chunks for _ in range(pipeline)]
        layers[0][0] = layers[-1][-1] = 0
        return tuple(map(tuple, layers))
    first, last = (int(given.get(f"decoder-{end}-pipeline-num-layers", 0)) for end in ("first", "last"))
    if first and last:
        rest, stages = num_layers - first - last, pipeline - 2
        return ((first,), *(((rest // stages,),) * stages), (last,))
    if num_layers % pipeline:
        raise UnplannedError(f"{num_layers} layers over {pipeline} stages")
    of_stage = num_layers // pipeline
    chunks = of_stage // per_chunk if per_chunk else 1
    return ((of_stage // chunks,) * chunks,) * pipeline


def rows_of(content: Any) -> list[dict[str, Any]]:
    """Return the rows of a file of published figures, checked.

    Raises:
        ValueError: it has another layout.
    """
    rows = content.get("rows") if isinstance(content, dict) else None
    if not isinstance(rows, list) or not rows:
        raise ValueError("must be an object with a list under 'rows'")
    for place, row in enumerate(rows):
        if not isinstance(row, dict) or not isinstance(row.get("args"), dict):
            raise ValueError(f"row {place}: must be an object with 'args'")
        for name in ("case", "hw"):
            if not isinstance(row.get(name), str):
                raise ValueError(f"row {place}: {name!r} must be a text, got {row.get(name)!r:.100}")
        for name in ("iteration_s", "peak_bytes", "allocated_bytes"):
            value = row.get(name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
                raise ValueError(f"row {place}: {name!r} must be a number or null, got {value!r:.100}")
    return rows
