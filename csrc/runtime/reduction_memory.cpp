#include "runtime/reduction_memory.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

namespace loom::runtime {

namespace {

// Figures of PyTorch's reduction kernels (aten/src/ATen/native/cuda/Reduce.cuh).
constexpr int64_t kThreadsPerBlock = 512, kWarp = 32, kResultsPerThread = 4, kInputsPerThread = 4;
constexpr int64_t kFewValues = 16, kManyValues = 256;

int64_t divided(int64_t count, int64_t by) { return (count + by - 1) / by; }

int64_t floor_power(int64_t count) {
  return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(count, 1))));
}

struct ThreadBlock {
  int64_t width, height;
};

ThreadBlock block_for(int64_t along, int64_t across, int64_t num_threads) {
  const int64_t wide = std::min(floor_power(along), num_threads);
  const int64_t high = std::min(floor_power(across), num_threads);
  const int64_t height = std::min(high, num_threads / std::min(wide, kWarp));
  return {std::min(wide, num_threads / height), height};
}

const Attribute* find(const Command& command, const char* name) {
  for (const Attribute& attribute : command.attributes) {
    if (std::strcmp(attribute.name, name) == 0) return &attribute;
  }
  return nullptr;
}

// Which dimensions are reduced; all, where "dim" is missing or empty.
std::vector<bool> reduced_dims(const Command& command, int32_t num_dims) {
  const auto count = static_cast<size_t>(num_dims);
  const Attribute* const dim = find(command, "dim");
  std::vector<int64_t> named;
  if (dim != nullptr && dim->kind == Attribute::Kind::kInteger) named.push_back(dim->integer);
  if (dim != nullptr && dim->kind == Attribute::Kind::kIntegers) {
    named.assign(dim->integers, dim->integers + dim->count);
  }
  if (named.empty()) return std::vector<bool>(count, true);
  std::vector<bool> reduced(count, false);
  for (const int64_t each : named) {
    const int64_t place = each < 0 ? each + num_dims : each;
    if (place >= 0 && place < num_dims) reduced[static_cast<size_t>(place)] = true;
  }
  return reduced;
}

}  // namespace

size_t partial_bytes(const ReductionShape& shape, const ReductionUnits& units) {
  if (shape.num_outputs <= 0 || shape.inputs_per_output <= 0) return 0;
  const bool is_vector = shape.is_over_rows && shape.num_outputs % kResultsPerThread == 0;
  const int64_t results = is_vector ? kResultsPerThread : 1;
  const int64_t num_threads = kThreadsPerBlock / results;
  const int64_t along =
      shape.is_over_rows ? shape.num_outputs / results : divided(shape.inputs_per_output, kInputsPerThread);
  const int64_t across = shape.is_over_rows ? shape.inputs_per_output : shape.num_outputs;
  const ThreadBlock block = block_for(along, across, num_threads);

  // What the threads of a block share: neighbours in memory, and where much is left for each, the rest.
  int64_t sharing = shape.is_over_rows ? 1 : block.width;
  int64_t results_at_once = shape.is_over_rows ? block.width : 1;
  const int64_t each = divided(shape.inputs_per_output, sharing);
  const bool splits = each >= std::min(block.height * kFewValues, kManyValues);
  (splits ? sharing : results_at_once) *= block.height;

  const int64_t values = divided(shape.inputs_per_output, sharing);
  const int64_t blocks = divided(shape.num_outputs / results, results_at_once);
  const int64_t at_once = units.num_cores * (units.threads_per_core / (block.width * block.height));
  if (!splits || values < kManyValues || blocks > at_once) return 0;
  const int64_t parts =
      std::max(std::min(divided(at_once, blocks), divided(values, kFewValues)), divided(values, kManyValues));
  if (parts <= 1) return 0;
  const int64_t lanes = shape.is_over_rows ? block.width * results : 1;
  return static_cast<size_t>(shape.result_bytes * shape.num_outputs * parts * lanes);
}

size_t reduction_bytes(const Command& command, const ReductionUnits& units) {
  if (units.num_cores == 0 || units.threads_per_core == 0 || command.inputs.empty()) return 0;
  const Operand& input = command.inputs.front();
  if (input.num_dims == 0) return 0;
  const std::vector<bool> reduced = reduced_dims(command, input.num_dims);
  ReductionShape shape{1, 1, false, std::max(input.item_bytes, 4)};
  int64_t least = INT64_MAX;
  for (int32_t dim = 0; dim < input.num_dims; ++dim) {
    const bool is_reduced = reduced[static_cast<size_t>(dim)];
    (is_reduced ? shape.inputs_per_output : shape.num_outputs) *= input.sizes[dim];
    if (input.sizes[dim] > 1 && input.strides[dim] < least) {
      least = input.strides[dim];
      shape.is_over_rows = !is_reduced;
    }
  }
  return partial_bytes(shape, units);
}

}  // namespace loom::runtime
