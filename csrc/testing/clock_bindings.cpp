// The clock with a source of the test's own: it concerns the drivers of this module.
#include <atomic>

#include "runtime/clock.h"
#include "testing/bindings.h"

namespace py = pybind11;

namespace loom::testing {

namespace {

class SetByHand final : public clock::Source {
 public:
  int64_t now_ns() noexcept override { return now_.load(std::memory_order_relaxed); }
  void set(int64_t now) { now_.store(now, std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> now_{0};
};

SetByHand& source() {
  static auto* source = new SetByHand;  // threads may be reading it when the process ends
  return *source;
}

std::atomic<bool> is_set{false};

template <int64_t (*Read)()>
double nanoseconds_a_call(int64_t calls) {
  const int64_t began = clock::host_ns();
  int64_t last = 0;
  for (int64_t i = 0; i < calls; ++i) {
    last += Read();
    asm volatile("" : "+r"(last));
  }
  return static_cast<double>(clock::host_ns() - began) / static_cast<double>(calls);
}

int64_t read_hook() { return clock::now_ns(); }
int64_t read_host() { return clock::host_ns(); }

}  // namespace

void bind_clock(py::module_& parent) {
  py::module_ m = parent.def_submodule("clock");
  m.def("set_time", [](int64_t nanoseconds) {
    source().set(nanoseconds);
    if (!is_set.exchange(true)) clock::set_source(&source());
  });
  m.def("restore", [] {
    clock::set_source(nullptr);
    is_set = false;
  });
  m.def("now_ns", &read_hook);
  m.def("wall_ns", &clock::wall_ns);
  m.def("ticks", &clock::ticks);
  m.def("ticks_per_second", &clock::ticks_per_second);
  // (through the hook, past it): nanoseconds that a reading takes.
  m.def("cost", [](int64_t calls) {
    return py::make_tuple(nanoseconds_a_call<read_hook>(calls), nanoseconds_a_call<read_host>(calls));
  });
}

}  // namespace loom::testing
