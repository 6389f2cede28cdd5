"""`TrainingArguments` takes accelerate's device, opens with bfloat16, and leaves the CPU a choice."""

import tempfile

from transformers import TrainingArguments

folder = tempfile.mkdtemp()
arguments = TrainingArguments(output_dir=folder, bf16=True)
assert (str(arguments.device), arguments.n_gpu, arguments.bf16) == ("loom:0", 1, True)
assert str(TrainingArguments(output_dir=folder, use_cpu=True).device) == "cpu"
