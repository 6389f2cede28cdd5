// torch.distributed._symmetric_memory for these devices: memory that the ranks of one machine map of one
// another, with signals between their streams.
#pragma once

namespace loom::distributed {

// Registers it with PyTorch for the device type; once.
void provide_symmetric_memory();
// The process is ending: signals that still wait for other ranks fail within seconds.
void end_signals() noexcept;

}  // namespace loom::distributed
