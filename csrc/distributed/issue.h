// What a collective takes of tensors, and what it refuses.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

#include "distributed/collectives.h"
#include "runtime/tape.h"

namespace loom::distributed {

// One operation on its way: addresses of tensors, and the tensors themselves.
struct Step {
  Task task;
  c10::Device device = c10::Device(c10::DeviceType::CPU);
  std::vector<at::Tensor> inputs, outputs;
  // Results that had to be received elsewhere: to, from.
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;
  std::string title;
};

// Refuses what is not a dense tensor of this device type, in NCCL's words.
void check(const at::Tensor& tensor, const std::string& backend);
const at::Tensor& only(const std::vector<at::Tensor>& tensors, const char* what, const std::string& backend);
// The list of the one input or output, with a tensor for each rank.
const std::vector<at::Tensor>& only_list(const std::vector<std::vector<at::Tensor>>& lists, const char* what,
                                         int num_ranks);
void check_root(int64_t root, int num_ranks);

void give(Step& step, const at::Tensor& tensor);
void take(Step& step, const at::Tensor& tensor);
// Also where the tensor is not dense; `like`: what its dtype has to be.
void take_anywhere(Step& step, const at::Tensor& tensor, const at::Tensor& like);
void give_piece(Step& step, const at::Tensor& tensor, const at::Tensor& like);
void set_pieces(Step& step, std::vector<Bytes> pieces);
// Splits along the first dimension, by sizes or evenly.
std::vector<Bytes> pieces_of(const at::Tensor& tensor, const Bytes& whole, const std::vector<int64_t>& sizes,
                             int num_ranks, const char* what);

std::string shape_text(const at::Tensor& tensor);
int32_t devices_of_machine(int device);
// Lives as long as the process.
const char* kernel_name(const std::string& backend, const Task& task);
c10d::OpType op_type(const std::vector<Step>& steps);

}  // namespace loom::distributed
