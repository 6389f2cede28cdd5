// The devices in torch.profiler.
#pragma once

namespace loom::glue {

// How many profiles were prepared so far: what was recorded in one must not be reported to the next.
unsigned long num_profiles() noexcept;

// Whether a running profile keeps what the devices do from now on; nothing when none runs. Each begins open.
void set_profile_open(bool is_open);

}  // namespace loom::glue
