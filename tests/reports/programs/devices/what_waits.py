import torch

x = torch.ones(3, device="cuda")
torch.cuda.set_sync_debug_mode("error")
for wait in (x[0].item, x.nonzero, torch.ones(3).cuda, lambda: x[x > 0]):
    try:
        wait()
    except RuntimeError as error:
        assert "called a synchronizing CUDA operation" in str(error), error
    else:
        raise AssertionError("nobody waited")
torch.ones(3).pin_memory().to("cuda", non_blocking=True)
