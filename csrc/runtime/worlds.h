// The devices of the program, and those of dry runs beside them. While a dry run is entered, the program sees
// its devices instead of its own: index 0 is another device then. An address always belongs to one device, so
// whatever outlives a dry run (tensors, events, graphs) is found by its address and ends where it began.
#pragma once

#include <atomic>
#include <cstdint>

#include "runtime/runtime.h"

namespace loom::runtime {

namespace detail {
extern std::atomic<bool> others;  // exist, beside the devices that the program sees
}  // namespace detail

// Where an address lies, in any world: searches the program's, then the others.
Place locate(const void* address) noexcept;

// Whether devices exist beside those that the program sees: only then can something belong to another world.
inline bool has_other_worlds() noexcept { return detail::others.load(std::memory_order_relaxed); }

// Where the engine's kernels reach what lies at an address, in whichever world.
inline void* engine_address(void* address) noexcept {
  const Runtime* const seen = detail::instance.load(std::memory_order_acquire);
  return !seen->is_fenced() && !has_other_worlds() ? address : locate(address).engine_address;
}

// The driver that an event was made by. `make_event` and `end_event` are for runtime::create_event() and
// destroy_event().
driver::Driver& driver_of(driver::Event event);
driver::Event make_event(Device& device, driver::EventOptions options);
void end_event(driver::Event event);

namespace worlds {

// The program's own devices; null before the first use.
Runtime* program() noexcept;

// Has the program see new devices. The caller has made sure that the program's own exist. Returns why not, or
// an empty text: another dry run has not been left, or a graph is being captured. Throws what Runtime throws.
std::string enter(const Config& config);
// Has the program see its own devices again. Those of the dry run stay for as long as something of theirs
// does (a tensor, an event, a graph), and for one more dry run: a thread may be within a call on them.
void leave() noexcept;

// What uses a device in other ways than by memory of it or by events keeps its world there.
class Pin {
 public:
  Pin() = default;
  explicit Pin(Runtime& world) noexcept;
  Pin(Pin&& other) noexcept;
  Pin& operator=(Pin&& other) noexcept;
  ~Pin();

 private:
  Runtime* world_ = nullptr;
};

}  // namespace worlds

}  // namespace loom::runtime
