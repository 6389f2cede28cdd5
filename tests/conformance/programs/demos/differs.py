"""A demo whose model is of formats that lose too much."""

import pybuda
import torch
from torch import nn

if __name__ == "__main__":
    pybuda.set_configuration_options(default_df_override=pybuda.DataFormat.Bfp2_b)
    module = pybuda.PyTorchModule("net", nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 32)))
    pybuda.run_inference(module, inputs=[(torch.rand(1, 64),)]).get(timeout=60)
