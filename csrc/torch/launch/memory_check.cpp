// Each access of a kernel in a checked build: whether it is to memory that the kernel was given.
#include <dlfcn.h>
#include <link.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <memory>

#include "torch/core/device.h"
#include "torch/launch/launch.h"

namespace loom::glue {

std::string line_of(const void* from) {
  Dl_info info{};
  if (dladdr(from, &info) == 0 || info.dli_fname == nullptr) return {};
  const std::string file = info.dli_fname;
  if (file.find('\'') != std::string::npos) return {};
  // Before the call's return.
  const auto offset = static_cast<const char*>(from) - static_cast<const char*>(info.dli_fbase) - 1;
  std::array<char, 4096> text{};
  std::snprintf(text.data(), text.size(), "addr2line -i -e '%s' 0x%zx 2>/dev/null", file.c_str(),
                static_cast<size_t>(offset));
  FILE* const pipe = popen(text.data(), "r");
  if (pipe == nullptr) return {};
  std::string found;
  // From the innermost function to the one that it was made part of.
  while (std::fgets(text.data(), text.size(), pipe) != nullptr) {
    std::string line = text.data();
    line.resize(std::min({line.size(), line.find(" (discriminator"), line.find('\n')}));
    const bool is_known = !line.empty() && line[0] != '?' && !line.ends_with(":?") && !line.ends_with(":0");
    if (!is_known) continue;
    const bool is_own = line.find("/kernels/cuda_cpp/include/") != std::string::npos;
    if (found.empty() || !is_own) found = line.substr(line.rfind('/') + 1);
    if (!is_own) break;
  }
  pclose(pipe);
  return found;
}

namespace {

// What kernels have reached by an address that they have read from memory, as from a table of pointers.
struct Reached {
  std::vector<KernelRange> ranges;
  const cuda_cpp::GridRun* in = nullptr;
};
Reached& reached_by(const cuda_cpp::GridRun& grid) {
  thread_local std::unique_ptr<Reached> instance;
  if (instance == nullptr) instance = std::make_unique<Reached>();
  if (instance->in != &grid) *instance = {{}, &grid};
  return *instance;
}

bool holds(const KernelRange& range, uintptr_t address, size_t bytes) {
  return address >= range.begin && address + bytes <= range.end;
}

// Data of the program's libraries, variables of a thread among them: `__device__`, `__constant__` and
// `__shared__` variables.
struct Search {
  uintptr_t address;
  loom_cuda_range found;
};
int find_segment(dl_phdr_info* info, size_t, void* context) {
  auto& search = *static_cast<Search*>(context);
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr) & segment = info->dlpi_phdr[i];
    uintptr_t begin = 0;
    if (segment.p_type == PT_LOAD) begin = info->dlpi_addr + segment.p_vaddr;
    if (segment.p_type == PT_TLS) begin = reinterpret_cast<uintptr_t>(info->dlpi_tls_data);
    if (begin != 0 && search.address >= begin && search.address < begin + segment.p_memsz) {
      search.found = {begin, begin + segment.p_memsz};
      return 1;
    }
  }
  return 0;
}

std::string distance(const KernelLaunch& launch, uintptr_t address, size_t bytes) {
  const KernelRange* nearest = nullptr;
  uintptr_t least = 0;
  for (const KernelRange& range : launch.ranges) {
    const uintptr_t away = address >= range.begin
                               ? (address + bytes > range.end ? address + bytes - range.end : 0)
                               : range.begin - address;
    if (nearest == nullptr || away < least) {
      nearest = &range;
      least = away;
    }
  }
  if (nearest == nullptr) return "the kernel was given no memory of a device";
  const std::string memory = nearest->name + " (" + std::to_string(nearest->end - nearest->begin) + " bytes)";
  if (address < nearest->begin) return std::to_string(nearest->begin - address) + " bytes before " + memory;
  if (address >= nearest->end)
    return std::to_string(address - nearest->end) + " bytes after the end of " + memory;
  return "across the end of " + memory;
}

[[noreturn]] void refuse(cuda_cpp::Runner& runner, uintptr_t address, size_t bytes, bool is_written,
                         const void* from, const std::string& where) {
  const std::string line = line_of(from);
  std::array<char, 32> shown{};
  std::snprintf(shown.data(), shown.size(), "0x%zx", static_cast<size_t>(address));
  runner.fail(cuda_cpp::kIllegalAddress, runner.position() + (is_written ? " writes " : " reads ") +
                                             std::to_string(bytes) + " bytes at " + shown.data() +
                                             (line.empty() ? "" : ", at " + line) + ": " + where);
}

}  // namespace

}  // namespace loom::glue

void loom_cuda_access(uintptr_t address, size_t bytes, int how, const void* from, loom_cuda_range* known) {
  using namespace loom::glue;
  const bool is_written = (how & LOOM_CUDA_WRITES) != 0;
  loom::cuda_cpp::Runner* const runner = loom::cuda_cpp::Runner::active();
  if (runner == nullptr) return;
  const auto& launch = static_cast<const KernelLaunch&>(runner->grid_run().kernel);
  std::vector<KernelRange>& reached = reached_by(runner->grid_run()).ranges;
  BlockWatch* const watch = launch.watch.get();
  // What is watched comes here each time, and is looked for first.
  if (watch == nullptr && runner->is_on_stack(address)) {
    *known = {address, address + bytes};
    return;
  }
  // What the headers keep of the launch.
  const auto holds_object = [&](const void* object, size_t size) {
    const auto first = reinterpret_cast<uintptr_t>(object);
    if (address < first || address + bytes > first + size) return false;
    *known = {first, first + size};
    return true;
  };
  if (holds_object(runner, sizeof(*runner)) || holds_object(launch.closure, launch.closure_bytes)) return;
  if (runner->is_shared(address, bytes)) {
    const auto first = reinterpret_cast<uintptr_t>(runner->shared);
    *known = {first, first + runner->shared_bytes};
    return;
  }
  for (const std::vector<KernelRange>* ranges :
       {&launch.ranges, static_cast<const std::vector<KernelRange>*>(&reached)}) {
    for (const KernelRange& range : *ranges) {
      if (!holds(range, address, bytes)) continue;
      if (watch != nullptr) {
        const BlockAccess kind = (how & LOOM_CUDA_ATOMIC) != 0
                                     ? (is_written ? BlockAccess::kAtomic : BlockAccess::kVolatileRead)
                                 : is_written ? BlockAccess::kWrite
                                              : BlockAccess::kRead;
        const std::string wrong = watch->look(*runner, range, address, bytes, kind, from);
        if (!wrong.empty()) runner->fail(loom::cuda_cpp::kLaunchFailure, wrong);
      }
      // A pointer among the contents gives the kernel what it points to. What is read in words of its size is
      // looked at each time, and not known from then on.
      if (!is_written && bytes == sizeof(uintptr_t) && address % sizeof(uintptr_t) == 0) {
        uintptr_t word;
        std::memcpy(&word, reinterpret_cast<const void*>(address), sizeof(word));
        KernelRange pointed = word < 4096 ? KernelRange() : allocation_around(word);
        if (pointed.end != 0) reached.push_back(pointed);
        return;
      }
      if (watch == nullptr || watch->has_given_up()) *known = {range.begin, range.end};
      return;
    }
  }
  if (watch != nullptr && runner->is_on_stack(address)) {
    *known = {address, address + bytes};
    return;
  }
  const loom::runtime::Place place = devices().locate(reinterpret_cast<const void*>(address));
  if (place.kind == loom::driver::AddressKind::kDevice) {
    refuse(*runner, address, bytes, is_written, from, distance(launch, address, bytes));
  }
  Search search{address, {}};
  if (dl_iterate_phdr(&find_segment, &search) != 0) {
    *known = search.found;
    return;
  }
  if (is_captured_random(address, bytes)) return;
  const auto shared = reinterpret_cast<uintptr_t>(runner->shared);
  std::string where = "no memory of a device";
  if (address + 65536 > shared && address < shared + runner->shared_bytes + 65536) {
    where = address < shared
                ? std::to_string(shared - address) + " bytes before the block's "
                : std::to_string(address - shared - runner->shared_bytes) + " bytes after the block's ";
    where += std::to_string(runner->shared_bytes) + " bytes of dynamic shared memory";
  } else if (address < 4096) {
    where = "a null pointer";
  }
  refuse(*runner, address, bytes, is_written, from, where);
}

void loom_cuda_access_shared(uintptr_t address, size_t bytes, unsigned thread, int is_written, int is_atomic,
                             const void* from) {
  using namespace loom::glue;
  loom::cuda_cpp::Runner* const runner = loom::cuda_cpp::Runner::active();
  if (runner == nullptr) return;
  const auto* other = runner->note_shared(address, bytes, {thread, is_written != 0, is_atomic != 0, from});
  if (other == nullptr) return;
  const auto at = [](const void* code) {
    const std::string line = line_of(code);
    return line.empty() ? line : " at " + line;
  };
  const bool is_global =
      devices().locate(reinterpret_cast<const void*>(address)).kind == loom::driver::AddressKind::kDevice;
  runner->fail(loom::cuda_cpp::kLaunchFailure,
               std::string("a race on ") + (is_global ? "global" : "shared") +
                   " memory: " + runner->position() + (is_written != 0 ? " writes " : " reads ") +
                   std::to_string(bytes) + " bytes" + at(from) + ", which " +
                   runner->thread_text(other->thread) + (other->is_written ? " has written" : " has read") +
                   at(other->from) + ": no barrier is between the two");
}
