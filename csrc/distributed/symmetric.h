// torch.distributed._symmetric_memory for these devices: memory that the ranks of one machine map of one
// another, with signals between their streams.
#pragma once

namespace loom::distributed {

// Makes it PyTorch's for the device type; once.
void provide_symmetric_memory();
// Waits for signals end soon, as the process does.
void end_signals() noexcept;

}  // namespace loom::distributed
