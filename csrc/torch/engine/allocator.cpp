#include "torch/engine/allocator.h"

#include <c10/core/CPUAllocator.h>

#include "runtime/worlds.h"
#include "torch/core/device.h"
#include "torch/core/device_memory.h"
#include "torch/engine/output_allocation.h"

namespace loom::glue {

namespace {

class EngineAllocator final : public c10::Allocator {
 public:
  explicit EngineAllocator(c10::Allocator* cpu) : cpu_(cpu), free_cpu_memory_(cpu->raw_deleter()) {
    instance_ = this;
  }

  c10::DataPtr allocate(size_t bytes) override {
    if (output_allocations == nullptr || bytes == 0) [[likely]] {
      return cpu_->allocate(bytes);
    }
    return output_allocations->allocate(bytes, *cpu_);
  }

  // raw_allocate() pairs with this, in whichever state the thread is by then: it must know both kinds of
  // memory.
  c10::DeleterFnPtr raw_deleter() const override { return &free_either; }

  bool is_simple_data_ptr(const c10::DataPtr& data) const override {
    return cpu_->is_simple_data_ptr(data) ||
           (data.get() == data.get_context() && data.get_deleter() == &free_device_memory);
  }
  void copy_data(void* destination, const void* source, size_t bytes) const override {
    cpu_->copy_data(destination, source, bytes);
  }

 private:
  static void free_either(void* address) {
    // Not devices(): a forked child frees memory of the CPU through here as well.
    if (runtime::locate(address).device == nullptr) {
      instance_->free_cpu_memory_(address);
    } else if (output_allocations == nullptr || !output_allocations->is_place(address)) {
      free_device_memory(address);
    }
  }

  static inline EngineAllocator* instance_ = nullptr;
  c10::Allocator* const cpu_;
  const c10::DeleterFnPtr free_cpu_memory_;
};

}  // namespace

void install_engine_allocator() {
  // Leaked: storages of the CPU keep a pointer to it until the process ends.
  auto* allocator = new EngineAllocator(c10::GetCPUAllocator());
  c10::SetCPUAllocator(allocator, /*priority=*/1);
}

}  // namespace loom::glue
