// Where the memory that the engine's kernel allocates comes from, while an op borrows: its outputs are born
// in device memory, its scratch is host memory. Earlier calls show which allocations become outputs: a kernel
// allocates in the same order for arguments of the same shapes.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/util/SmallVector.h>

#include <cstdint>

#include "runtime/device.h"
#include "util/thread_local.h"

namespace loom::glue {

// Which of a kernel's allocations become outputs: bit n for the n-th; those after the 64th are host memory.
using OutputMask = uint64_t;

// The allocations of one run of a kernel.
class OutputAllocations {
 public:
  // An output's place that is known before the kernel runs.
  struct Place {
    size_t bytes;
    void* address;  // where the engine reaches it; null: this allocation is scratch
  };

  // Unknown: all on the host; index_of() finds the outputs afterwards.
  static OutputAllocations learning() { return OutputAllocations(Mode::kLearning); }
  // Outputs have memory already.
  OutputAllocations(const Place* places, size_t num_places)
      : mode_(Mode::kPlaced), places_(places), num_places_(num_places) {}

  // Outputs are known, before the kernel runs: those of `mask` are born on `device`.
  void know(const runtime::Device& device, OutputMask mask) {
    mode_ = Mode::kKnown;
    device_ = &device;
    mask_ = mask;
  }

  // While these are learned: small ones are born on `device`, since all became outputs before. Where that is
  // wrong, scratch is counted as device memory for a moment.
  void guess(const runtime::Device& device) { guessed_ = &device; }

  // While these are learned: an allocation of more than the device has throws, before the host has to find
  // it. For kernels that have written nothing by then.
  void bound_by(const runtime::Device& device) { device_ = &device; }
  // The bytes of the allocation that threw, or 0.
  size_t refused_bytes() const { return refused_bytes_; }

  struct Allocation {
    void* address;
    size_t bytes;
  };
  const c10::SmallVector<Allocation, 8>& seen() const { return seen_; }
  // The index in seen() of the allocation that an address belongs to now, or −1.
  int index_of(const void* address) const;

  // While it lives, this thread's allocations are these output_allocations.
  class Active {
   public:
    inline explicit Active(OutputAllocations& own);
    inline ~Active();
    Active(const Active&) = delete;
    Active& operator=(const Active&) = delete;

   private:
    OutputAllocations* const previous_;
  };

  // While it lives, this thread's allocations are the CPU's.
  class Suspended {
   public:
    Suspended();
    ~Suspended();
    Suspended(const Suspended&) = delete;
    Suspended& operator=(const Suspended&) = delete;

   private:
    OutputAllocations* const previous_;
  };

  // Whether the output allocated last was put at an address, on the device: a quick answer for most ops,
  // which have one output.
  bool is_latest_output(const void* address) const { return address == latest_output_; }

  // For the engine's allocator: memory for one allocation of the kernel, from `host` when it is scratch.
  c10::DataPtr allocate(size_t bytes, c10::Allocator& host);
  // Whether an address that the kernel frees is an output's place: it belongs to the output.
  bool is_place(const void* address) const;

 private:
  enum class Mode : uint8_t { kKnown, kLearning, kPlaced };
  explicit OutputAllocations(Mode mode) : mode_(mode) {}
  void check_bound(size_t bytes);
  c10::DataPtr take_output(const runtime::Device& device, size_t bytes);

  Mode mode_;
  const runtime::Device* guessed_ = nullptr;  // whose outputs small allocations are taken for
  const runtime::Device* device_ = nullptr;
  OutputMask mask_ = 0;
  size_t count_ = 0, refused_bytes_ = 0;
  const void* latest_output_ = nullptr;
  const Place* places_ = nullptr;
  size_t num_places_ = 0;
  c10::SmallVector<Allocation, 8> seen_;
};

// Those of this thread, or null: memory is the CPU's.
LOOM_FAST_ACCESS extern constinit thread_local OutputAllocations* output_allocations;

OutputAllocations::Active::Active(OutputAllocations& own) : previous_(output_allocations) {
  output_allocations = &own;
}
OutputAllocations::Active::~Active() { output_allocations = previous_; }

}  // namespace loom::glue
