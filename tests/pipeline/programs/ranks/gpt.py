import json
import os
import sys
from pathlib import Path

import torch

from examples import pipeline_gpt as gpt

torch.set_num_threads(1)
torch.manual_seed(0)
first, last = gpt.place()
losses, picture = gpt.train(first, last, 3)
parameters = gpt.pybuda.get_parameter_checkpoint()
total = sum(float(value.value().double().sum()) for part in parameters for value in part.values())
tokens = gpt.generate(first, torch.tensor(list(b"Return ")), 10)
rows = [line.split("|")[0].strip() for line in picture.splitlines() if set(line.split("|")[-2:][0]) & {"F"}]
told = [losses, total, tokens.tolist(), rows]
Path(f"{sys.argv[1]}/rank{os.environ.get('RANK', 'none')}.json").write_text(json.dumps(told))
