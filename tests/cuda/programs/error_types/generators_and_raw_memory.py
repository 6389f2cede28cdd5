import torch

from tests.cuda.programs.error_types.start import kind

state = torch.cuda.get_rng_state()
generator = torch.Generator("cuda")
for call in (
    lambda: torch.cuda.set_rng_state(state[:15]),
    lambda: generator.set_state(state.repeat(2)),
    lambda: generator.set_offset(3),
    lambda: torch.cuda.caching_allocator_delete(4096),
    lambda: torch.cuda.caching_allocator_delete(torch.ones(2, device="cuda").data_ptr()),
):
    assert kind(call) is RuntimeError
assert kind(lambda: generator.set_state(state.float())) is TypeError
