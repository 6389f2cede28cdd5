"""BERT-base over 64 rows of 128 words, as `loom compile` takes it.

loom compile examples/compile_bert.py --chip wormhole_b0 --report plan.html
"""

from __future__ import annotations

import torch
from pipeline_models import bert

model = bert(layers=12, width=768, heads=12).eval()
inputs = (torch.randint(30522, (64, 128)),)
