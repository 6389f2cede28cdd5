import sys

import torch

x = torch.ones(3, device="cuda")
print(x.device, torch.cuda.device_count(), torch.cuda.get_device_name(), sys.argv[1:])
