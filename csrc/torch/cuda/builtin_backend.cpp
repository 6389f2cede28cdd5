// The only file that names private members of PyTorch's. There is no extension point for taking a backend out
// (docs/upstream.md asks for one), so each member is named, with its type, where compiling fails if it has
// changed.
#include "torch/cuda/builtin_backend.h"

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/profiler/stubs/base.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <list>
#include <mutex>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "torch/core/device_type.h"
#include "torch/core/kineto_headers.h"

namespace loom::glue {

namespace {

using c10::impl::AnnotatedKernel;
using c10::impl::OperatorEntry;

// The arguments of an explicit instantiation may name what is private: the function that a tag declares then
// returns the pointer to the member.
template <typename Tag, auto kMember>
struct Opened {
  friend constexpr auto member(Tag) { return kMember; }
};

struct Operators {
  friend constexpr auto member(Operators);
};
struct Guard {
  friend constexpr auto member(Guard);
};
struct Kernels {
  friend constexpr auto member(Kernels);
};

template struct Opened<Operators, &c10::Dispatcher::operators_>;
template struct Opened<Guard, &c10::Dispatcher::guard_>;
template struct Opened<Kernels, &OperatorEntry::kernels_>;

// What the code below assumes of them, the same from PyTorch 2.13 to 2.15.
using KernelList = std::list<AnnotatedKernel>;
using KernelMap = ska::flat_hash_map<c10::DispatchKey, KernelList>;
static_assert(std::is_same_v<decltype(member(Kernels{})), KernelMap OperatorEntry::*>);

c10::Dispatcher& dispatcher() { return c10::Dispatcher::singleton(); }
auto& operators() { return dispatcher().*member(Operators{}); }
auto& guard() { return *(dispatcher().*member(Guard{})); }

static_assert(std::is_same_v<decltype(operators().front().op), OperatorEntry>);
static_assert(std::is_same_v<decltype(guard().alive), std::atomic<bool>>);
static_assert(std::is_same_v<decltype(guard().mutex), std::mutex>);

// Whether a kernel is compiled for CUDA, by the file that has registered it. Others are in every build: those
// of collectives, which ask a process group, and what Python has registered, which also takes it away by
// itself.
bool is_for_gpus(const AnnotatedKernel& kernel) {
  const std::string_view where = kernel.debug;
  const auto has = [&](std::string_view part) { return where.find(part) != std::string_view::npos; };
  return (has(".cpp:") || has(".cu:")) && !has("/c10d/Ops.cpp:");
}

struct Taken {
  OperatorEntry* entry;
  c10::DispatchKey key;
};

// What has been taken out, in this order, and what else ours replace.
struct Displaced {
  KernelList kernels;
  std::vector<Taken> places;  // of each
  const c10::impl::DeviceGuardImplInterface* guard;
  c10::Allocator* allocator;
  at::HostAllocator* host_allocator;
  const torch::profiler::impl::ProfilerStubs* profiler_stubs;
  // The object has no data of its own (core/extension_points.h): its bytes say of which class it is.
  std::array<std::byte, sizeof(at::CUDAHooksInterface)> hooks;
};

// Leaked: PyTorch's libraries hold iterators to the kernels.
Displaced*& displaced() {
  static Displaced* all = nullptr;
  return all;
}

void* kept_hooks() { return const_cast<at::CUDAHooksInterface*>(&at::detail::getCUDAHooks()); }

// Under the dispatcher's lock.
void take_out(OperatorEntry& entry, c10::DispatchKey key) {
  KernelMap& kernels = entry.*member(Kernels{});
  const auto found = kernels.find(key);
  if (found == kernels.end()) return;
  KernelList& own = found->second;
  Displaced& all = *displaced();
  const size_t count = all.places.size();
  for (auto kernel = own.begin(); kernel != own.end();) {
    const auto current = kernel++;
    if (!is_for_gpus(*current)) continue;
    // Splicing leaves the iterators valid.
    all.kernels.splice(all.kernels.end(), own, current);
    all.places.push_back({&entry, key});
  }
  if (all.places.size() == count) return;
  if (own.empty()) kernels.erase(found);
  // Computes the op's entry of the table anew.
  entry.updateFallback(dispatcher(), key);
}

// When the process ends, PyTorch's libraries would look for their kernels where they put them. What they find
// is a dispatcher that has ended, as if it had been destroyed before them.
void end_dispatcher() {
  const std::lock_guard<std::mutex> lock(guard().mutex);
  guard().alive.store(false);
}

}  // namespace

void displace_builtin_backend() {
  const c10::DeviceType type = device_type();
  if (type != c10::DeviceType::CUDA || !c10::impl::hasDeviceGuardImpl(type)) return;
  Displaced& all = *(displaced() = new Displaced{});
  all.guard = c10::impl::getDeviceGuardImpl(type);
  all.allocator = c10::GetAllocator(type);
  all.host_allocator = at::getHostAllocator(type);
  all.profiler_stubs = torch::profiler::impl::cudaStubs();
  std::memcpy(all.hooks.data(), kept_hooks(), all.hooks.size());
  // Registered after the handlers of PyTorch's libraries, and so called before them.
  std::atexit(end_dispatcher);
  const std::lock_guard<std::mutex> lock(guard().mutex);
  for (auto& definition : operators()) {
    for (const c10::DispatchKey key :
         {own_key(), sparse_key(), sparse_csr_key(), quantized_key(), nested_key()}) {
      take_out(definition.op, key);
    }
  }
}

void restore_builtin_backend() {
  if (displaced() == nullptr) return;
  Displaced& all = *std::exchange(displaced(), nullptr);
  {
    const std::lock_guard<std::mutex> lock(guard().mutex);
    for (const Taken& place : all.places) {
      KernelList& own = (place.entry->*member(Kernels{}))[place.key];
      own.splice(own.end(), all.kernels, all.kernels.begin());
      place.entry->updateFallback(dispatcher(), place.key);
    }
  }
  const c10::DeviceType type = device_type();
  c10::impl::device_guard_impl_registry[static_cast<size_t>(type)].store(all.guard);
  c10::SetAllocator(type, all.allocator);
  at::setHostAllocator(type, all.host_allocator);
  torch::profiler::impl::registerCUDAMethods(
      const_cast<torch::profiler::impl::ProfilerStubs*>(all.profiler_stubs));
  std::memcpy(kept_hooks(), all.hooks.data(), all.hooks.size());
}

void keep_kineto_on_host() {
  if (displaced() == nullptr || libkineto::api().isProfilerRegistered()) return;
  // Its first profile also counts the GPUs, and prints that it cannot: silent until that is over, which
  // is when our session (profiler/kineto.cpp) has its turn.
  constexpr const char* kLogLevel = "KINETO_LOG_LEVEL";
  const bool is_ours = std::getenv(kLogLevel) == nullptr;
  if (is_ours) setenv(kLogLevel, "100", 0);
  libkineto_init(/*cpuOnly=*/true, /*logOnError=*/false);
  if (is_ours) unsetenv(kLogLevel);
}

}  // namespace loom::glue
