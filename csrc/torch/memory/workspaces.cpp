#include "torch/memory/workspaces.h"

#include <ATen/Context.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

#include "runtime/plan_recorder.h"
#include "torch/core/device.h"
#include "torch/core/device_memory.h"
#include "torch/ops/op_facts.h"

namespace loom::glue::workspaces {

std::atomic<bool> detail::are_provided{false};

namespace {

// That cuBLASLt computes: always, or where they are given a bias.
constexpr std::string_view kLinearOps[] = {"aten::_addmm_activation", "aten::_int_mm", "aten::_scaled_mm",
                                           "aten::_scaled_mm_v2"};
constexpr std::string_view kBiasOps[] = {"aten::addmm", "aten::linear"};
constexpr int kBackwardHandle = -1;

struct Key {
  const runtime::Device* device;
  int handle;
  int64_t stream;
  Library library;
  auto operator<=>(const Key&) const = default;
};
struct Workspace {
  void* address;
  size_t bytes;
};
using Workspaces = std::map<Key, Workspace>;

// Leaked, as the devices are.
struct All {
  std::mutex mutex;  // never held while memory is taken or given back
  std::map<const runtime::Runtime*, std::vector<Sizes>> sizes;
  Workspaces workspaces;
  std::optional<size_t> own_bytes[2];  // by library, set by the program
  std::function<Rules()> ask = [] { return Rules{}; };
  std::optional<Rules> rules;
  std::map<int, std::vector<int>> spare_handles;  // by device, those of threads that have ended
  std::map<int, int> num_handles;
  std::atomic<uint64_t> version{1};  // changes whenever a workspace that a thread knows may have gone
};

All& all() {
  static auto* const instance = new All;
  return *instance;
}

using Guard = std::lock_guard<std::mutex>;

// What a thread has: its handles, which others get when it ends, and what it has seen to be there.
struct Own {
  struct Seen {
    const runtime::Device* device = nullptr;
    int64_t stream = 0;
    bool is_backward = false;
    uint64_t version = 0;
    bool operator==(const Seen&) const = default;
  };
  std::array<Seen, 2> seen;    // of products, and of those that cuBLASLt has
  std::map<int, int> handles;  // by device
  ~Own() {
    const Guard guard(all().mutex);
    for (const auto& [device, handle] : handles) all().spare_handles[device].push_back(handle);
  }
};

Own& own() {
  static thread_local const auto instance = std::make_unique<Own>();
  return *instance;
}

// With the lock held.
int own_handle(int device) {
  const auto [found, is_new] = own().handles.try_emplace(device, 0);
  if (!is_new) return found->second;
  std::vector<int>& spare = all().spare_handles[device];
  if (spare.empty()) {
    found->second = all().num_handles[device]++;
  } else {
    found->second = spare.back();
    spare.pop_back();
  }
  return found->second;
}

// Not with the lock held: it asks Python.
const Rules& rules() {
  {
    const Guard guard(all().mutex);
    if (all().rules.has_value()) return *all().rules;
  }
  Rules asked = all().ask();
  const Guard guard(all().mutex);
  if (!all().rules.has_value()) all().rules = std::move(asked);
  return *all().rules;
}

size_t chosen_bytes(Library library, const Sizes& sizes) {
  const Rules& environment = rules();
  const auto chosen = [&](Library each, const std::optional<size_t>& named, size_t otherwise) {
    const Guard guard(all().mutex);
    return all().own_bytes[static_cast<size_t>(each)].value_or(named.value_or(otherwise));
  };
  const size_t bytes = chosen(Library::kPlain, environment.bytes, sizes.bytes);
  if (library == Library::kPlain) {
    if (!environment.not_understood.empty()) {
      TORCH_WARN_ONCE("Could not parse ", environment.not_understood, ", using default workspace size of ",
                      bytes, " bytes.");
    }
    return bytes;
  }
  if (!environment.is_shared) return chosen(Library::kLinear, environment.linear_bytes, sizes.linear_bytes);
  const size_t linear_bytes = chosen(Library::kLinear, environment.linear_bytes, bytes);
  if (linear_bytes > bytes) {
    TORCH_WARN_ONCE("Requested unified CUBLASLT workspace size of ", linear_bytes,
                    " bytes exceeds CUBLAS workspace size of ", bytes,
                    " bytes. Please increase CUBLAS workspace size via CUBLAS_WORKSPACE_CONFIG or decrease "
                    "requested CUBLASLT_WORKSPACE_SIZE. Otherwise CUBLASLT workspace size will be limited to "
                    "the CUBLAS workspace size.");
  }
  return std::min(linear_bytes, bytes);
}

Sizes sizes_of(const runtime::Device& device) {
  const Guard guard(all().mutex);
  const auto found = all().sizes.find(&device.runtime());
  if (found == all().sizes.end()) return {};
  return found->second[static_cast<size_t>(device.logical)];
}

bool calls_library(const runtime::OpRecord& op) {
  // cuDNN takes its memory for the length of a call; without it convolutions are made of products.
  if (op.shape_class == runtime::ShapeClass::kConvolution) return !at::globalContext().userEnabledCuDNN();
  return facts_of(op.full_name).has(op_flag::kCallsBlas);
}

void give_back(const Workspaces& workspaces) {
  for (const auto& [key, workspace] : workspaces) free_device_memory(workspace.address);
}

template <typename Predicate>
void clear_where(Predicate is_meant) {
  Workspaces gone;
  {
    const Guard guard(all().mutex);
    ++all().version;
    for (auto each = all().workspaces.begin(); each != all().workspaces.end();) {
      const auto next = std::next(each);
      if (is_meant(each->first)) gone.insert(all().workspaces.extract(each));
      each = next;
    }
  }
  give_back(gone);
}

// Takes memory of the stream that the thread has chosen.
void take_new(const Key& key, size_t bytes) {
  const runtime::PlanRecorder::TakingWorkspace taking;
  const Workspace taken{take_device_memory(*key.device, bytes), bytes};
  Workspaces replaced;
  {
    const Guard guard(all().mutex);
    if (auto old = all().workspaces.extract(key); !old.empty()) replaced.insert(std::move(old));
    all().workspaces.emplace(key, taken);
  }
  give_back(replaced);
}

}  // namespace

void set_rules(std::function<Rules()> ask) { all().ask = std::move(ask); }

void provide(runtime::Runtime& world, std::vector<Sizes> sizes) {
  const Guard guard(all().mutex);
  all().sizes[&world] = std::move(sizes);
  detail::are_provided = true;
}

void end(runtime::Runtime& world) {
  clear(world);
  const Guard guard(all().mutex);
  all().sizes.erase(&world);
  detail::are_provided = !all().sizes.empty();
}

void clear(runtime::Runtime& world) {
  clear_where([&](const Key& key) { return &key.device->runtime() == &world; });
}

void clear(const runtime::Device& device, int64_t stream) {
  clear_where([&](const Key& key) { return key.device == &device && key.stream == stream; });
}

size_t bytes_of(Library library, int device) {
  const Sizes sizes = sizes_of(devices().device(device));
  return sizes.bytes == 0 ? 0 : chosen_bytes(library, sizes);
}

void set_bytes(Library library, std::optional<size_t> bytes) {
  const Guard guard(all().mutex);
  all().own_bytes[static_cast<size_t>(library)] = bytes;
  ++all().version;
}

void take(const runtime::Device& device, runtime::StreamRef stream, const runtime::OpRecord& op,
          bool has_vector) {
  const auto is_among = [&](const auto& names) {
    return std::find(std::begin(names), std::end(names), std::string_view(op.name)) != std::end(names);
  };
  const bool is_linear = is_among(kLinearOps) || (has_vector && is_among(kBiasOps));
  const Own::Seen now{&device, stream.id, torch::autograd::get_current_graph_task_id() != -1,
                      all().version.load()};
  Own::Seen& seen = own().seen[is_linear ? 1 : 0];
  if (seen == now) return;
  if (!calls_library(op)) return;
  const Sizes sizes = sizes_of(device);
  if (sizes.bytes == 0) return;
  const bool is_shared = rules().is_shared;
  const Library library = is_linear && !is_shared ? Library::kLinear : Library::kPlain;
  const size_t bytes = chosen_bytes(library, sizes);
  Key key{&device, kBackwardHandle, stream.id, library};
  bool is_there = false;
  {
    const Guard guard(all().mutex);
    if (!now.is_backward) key.handle = own_handle(device.logical);
    const auto found = all().workspaces.find(key);
    // cuBLASLt takes what it finds of cuBLAS's, whatever its size.
    is_there = found != all().workspaces.end() && ((is_linear && is_shared) || found->second.bytes >= bytes);
  }
  if (!is_there) take_new(key, bytes);
  seen = now;
}

void take_for_call(const runtime::Device& device, size_t bytes) {
  if (sizes_of(device).bytes == 0) return;
  const runtime::PlanRecorder::TakingWorkspace taking;
  try {
    free_device_memory(take_device_memory(device, bytes));
  } catch (const c10::OutOfMemoryError&) {
    return;
  }
}

}  // namespace loom::glue::workspaces
