// Which data of the host came from a device, while ops are watched: tensors are known for as long as they
// live, and the contents that were read last by their values, so that a list or a number is known as well.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace loom::glue::host_data {

// A copy to the host is a departure, known by a number from 1.
void add(const at::Tensor& tensor, int64_t departure);
void add_contents(const at::Tensor& tensor, int64_t departure);
void add_number(double value, int64_t departure);

// The tensor was written whole, from elsewhere.
void remove(const at::Tensor& tensor);

// The departure of what a tensor holds; 0: none. By its contents: not for those that would often be equal by
// chance (a small whole number, the same value throughout).
int64_t find(const at::Tensor& tensor);
int64_t find_contents(const at::Tensor& tensor);

void clear();

}  // namespace loom::glue::host_data
