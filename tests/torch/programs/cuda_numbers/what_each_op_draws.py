import hashlib

import torch

from tests.torch.programs.cuda_numbers.draws import OPS, offset

# What each op draws and how far it moves the offset, one op a line; on a side stream, where ops are queued,
# too.
device = torch.accelerator.current_accelerator().type
torch.manual_seed(3)
for name, draw in OPS.items():
    digests = []
    for side in (False, True):
        with torch.Stream(device) if side else torch.no_grad():
            drawn = draw(device)
        torch.accelerator.synchronize()
        digests.append(
            hashlib.sha256(bytes(drawn.cpu().contiguous().view(torch.uint8).numpy())).hexdigest()[:16]
        )
    print(f"{name}: {offset(device)} {' '.join(digests)}")
