# Ops that FBGEMM and oneDNN compute on the CPU: PyTorch has no kernel of them for CUDA.
import warnings

import torch
from torch import nn

warnings.simplefilter("ignore")
model = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(4, 4)), {nn.Linear})
assert model(torch.ones(2, 4)).shape == (2, 4)
x = torch.ones(2, 4, device="cuda")
calls = {
    "'quantized::linear_dynamic' with arguments from the 'CUDA' backend": lambda: model(x),
    "'quantized::embedding_bag_byte_prepack' with": lambda: torch.ops.quantized.embedding_bag_byte_prepack(x),
    "'mkldnn::_linear_pointwise'": lambda: torch.ops.mkldnn._linear_pointwise(x, x, None, "none", [], ""),
}
for words, call in calls.items():
    try:
        call()
    except NotImplementedError as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"{words}: it was not refused")
