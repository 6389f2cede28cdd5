import torch


def advanced(draw):
    "The offset of the generator after a draw."
    torch.cuda.manual_seed(5)
    draw()
    state = bytes(torch.cuda.get_rng_state().tolist())
    assert int.from_bytes(state[:8], "little") == 5
    return int.from_bytes(state[8:], "little")
