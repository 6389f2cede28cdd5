// The devices in the profiler without Kineto (torch.autograd.profiler.profile(use_device=...)): an event on
// the stream before and after each op.
#include <torch/csrc/profiler/stubs/base.h>

#include "runtime/clock.h"
#include "torch/core/device.h"
#include "torch/core/extension_points.h"
#include "torch/profiler/profile_recorder.h"
#include "torch/profiler/register.h"

namespace loom::glue {

namespace {

using torch::profiler::impl::ProfilerVoidEventStub;

class Stubs final : public torch::profiler::impl::ProfilerStubs {
 public:
  void record(c10::DeviceIndex* device, ProfilerVoidEventStub* event, int64_t* cpu_ns) const override {
    const c10::Device current = resolve_device(std::nullopt);
    if (device != nullptr) *device = current.index();
    translated([&] {
      const driver::Event created = runtime::create_event(current.index(), {/*timing=*/true});
      *event = ProfilerVoidEventStub(created, [](void* pointer) {
        if (!runtime::in_bad_fork()) runtime::destroy_event(static_cast<driver::Event>(pointer));
      });
      runtime::record_event(created, runtime::current_stream_of(current.index()));
    });
    if (cpu_ns != nullptr) *cpu_ns = runtime::clock::wall_ns();
  }

  // Microseconds.
  float elapsed(const ProfilerVoidEventStub* start, const ProfilerVoidEventStub* end) const override {
    return translated([&] {
      const auto first = static_cast<driver::Event>(start->get());
      const auto second = static_cast<driver::Event>(end->get());
      runtime::synchronize_event(second);
      return static_cast<float>(static_cast<double>(runtime::elapsed_ns(first, second)) / 1e3);
    });
  }

  void mark(const char* /*name*/) const override {}  // nothing keeps moments without a profile
  void rangePush(const char* name) const override { push_range(name); }
  void rangePop() const override { pop_range(); }
  bool enabled() const override { return true; }

  void onEachDevice(std::function<void(int)> op) const override {
    for (int device = 0; device < device_count(); ++device) {
      const CurrentDevice current(device);
      op(device);
    }
  }

  void synchronize() const override {
    const int device = resolve_device(std::nullopt).index();
    translated([&] { runtime::synchronize_device(device); });
  }
};

}  // namespace

// Leaked: profiles may end with the process.
void register_stubs() { register_profiler_stubs(new Stubs); }

}  // namespace loom::glue
