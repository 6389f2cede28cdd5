#include "torch/memory/worlds.h"

#include <c10/core/AutogradState.h>

#include "torch/memory/lazy.h"

namespace loom::glue {

namespace {

// The devices that a storage belongs to; null when nothing says so: it has no memory.
const runtime::Runtime* world_of(const c10::StorageImpl* storage) {
  if (storage == nullptr) return nullptr;
  if (is_unmaterialised(storage)) return world_of_unmaterialised(storage);
  const void* const data = storage->data_ptr().get();
  if (data == nullptr) return nullptr;
  const runtime::Device* const device = runtime::locate(data).device;
  return device == nullptr ? nullptr : &device->runtime();
}

[[noreturn]] void refuse(const runtime::Runtime& current, const runtime::Runtime* own,
                         const c10::Device device, const char* op_name) {
  if (current.world() != 0) {
    TORCH_CHECK(false, op_name, ": a tensor on ", device, " was made ",
                own != nullptr && own->world() != 0 ? "in another dry run" : "before this dry run began",
                " and is of other devices than those of torch.", device_name(),
                ".dry_run(): make the model and its inputs inside of the with block");
  }
  TORCH_CHECK(false, op_name, ": a tensor on ", device, " was made in a dry run that has ended (torch.",
              device_name(),
              ".dry_run()): it has a shape and a dtype, and no contents; make it anew on this device");
}

}  // namespace

void detail::check_world_slow(const runtime::Runtime& current, const c10::StorageImpl* storage, int index,
                              const char* op_name, bool wants_gradient) {
  const runtime::Runtime* const own = world_of(storage);
  const c10::Device device(device_type(), static_cast<c10::DeviceIndex>(index));
  if (own == nullptr ? index >= current.device_count() : own != &current) {
    refuse(current, own, device, op_name);
  }
  const runtime::Runtime& program = *runtime::worlds::program();
  TORCH_CHECK(
      index < program.device_count() || !wants_gradient ||
          !c10::AutogradState::get_tls_state().get_multithreading_enabled(),
      op_name, ": this dry run has more devices (", current.device_count(), ") than the program (",
      program.device_count(),
      "), and autograd's threads are switched on: PyTorch makes them once, one for "
      "each of the program's devices. Call torch.autograd.set_multithreading_enabled(False), or give the "
      "program as many devices (TORCH_LOOM_DEVICES)");
}

}  // namespace loom::glue
