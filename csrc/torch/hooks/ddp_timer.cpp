// Where DistributedDataParallel reads how long its phases took on the device.
#include <c10/core/Event.h>

#include <array>
#include <cmath>
#include <memory>
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

#include "torch/core/device_type.h"
#include "torch/hooks/register.h"

namespace loom::glue {

namespace {

class DdpTimer final : public c10d::Timer {
 public:
  explicit DdpTimer(c10::Device device) : device_(device) {}

  void record(Event event) override {
    Timer::record(event);
    const c10::DeviceGuard guard(device_);
    const c10::impl::VirtualGuardImpl devices(device_.type());
    std::unique_ptr<c10::Event>& own = events_[static_cast<size_t>(event)];
    own = std::make_unique<c10::Event>(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
    own->record(devices.getStream(device_));
  }

  std::optional<int64_t> measureDifference(Event start, Event end) override {
    const std::unique_ptr<c10::Event>& first = events_[static_cast<size_t>(start)];
    const std::unique_ptr<c10::Event>& last = events_[static_cast<size_t>(end)];
    if (first == nullptr || last == nullptr) return std::nullopt;
    const c10::DeviceGuard guard(device_);
    first->synchronize();
    last->synchronize();
    const double milliseconds = first->elapsedTime(*last);
    // A phase of an earlier iteration.
    if (milliseconds < 0) return std::nullopt;
    return std::llround(milliseconds * 1e6);
  }

 private:
  static constexpr size_t kNumEvents = static_cast<size_t>(Event::kBackwardCommEnd) + 1;
  const c10::Device device_;
  std::array<std::unique_ptr<c10::Event>, kNumEvents> events_;
};

}  // namespace

void register_ddp_timer() {
  // Before what a build for CUDA has for that type.
  c10d::TimerRegistry()->Register(
      device_type(),
      [](c10::Device device) -> std::unique_ptr<c10d::Timer> { return std::make_unique<DdpTimer>(device); },
      c10::REGISTRY_PREFERRED);
}

}  // namespace loom::glue
