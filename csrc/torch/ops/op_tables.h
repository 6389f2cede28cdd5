// Facts about ops that their schemas do not say.
#pragma once

#include <string>

namespace loom::glue {

// Ops on whose operands TensorIterator checks the device: tensors of the CPU without dimensions are taken.
bool accepts_host_scalars(const std::string& name);
// Ops that take whole tensors of the CPU, as CUDA's do: sequence lengths, optimizer steps.
bool accepts_host_tensors(const std::string& name);
// Ops that take index tensors of the CPU for tensors of the device.
bool accepts_host_indices(const std::string& name);
// Ops that make the contents of their one result from no tensor but host scalars: under the lazy policy they
// fill the host side of a result that waits for device memory.
bool makes_contents(const std::string& name);
// False for ops that must not run borrowed: their results are layouts or types that the device does not have.
bool is_borrowable(const std::string& name);

}  // namespace loom::glue
