// Keeping a device busy on purpose (sleep, wait for a flag), and what it was seen doing.
#include <torch/csrc/Exceptions.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/clock.h"
#include "runtime/ipc/activity_board.h"
#include "runtime/simulated_clock.h"
#include "telemetry/activity_reader.h"
#include "torch/bindings/bindings.h"
#include "torch/bindings/guarded.h"
#include "torch/core/device.h"

namespace py = pybind11;

namespace loom::glue {

namespace {

constexpr size_t kMaxDevices = 64;

// In stream order, and in the caller's thread only where the launch mode has it so.
void submit_aside(const char* name, std::function<void()> work) {
  const runtime::StreamRef stream = runtime::current_stream_of(resolve_device(std::nullopt).index());
  const auto run = [](void* context, driver::Stream) { (*static_cast<std::function<void()>*>(context))(); };
  const auto release = [](void* context) { delete static_cast<std::function<void()>*>(context); };
  const driver::Kernel kernel{name, run, release, new std::function<void()>(std::move(work))};
  translated([&] { runtime::submit_aside(stream, kernel); });
}

// `name` lives as long as the process: a profile may show it later.
void sleep(int64_t nanoseconds, const char* name) {
  const runtime::simulated::Said said(nanoseconds);
  submit_aside(name, [nanoseconds] { std::this_thread::sleep_for(std::chrono::nanoseconds(nanoseconds)); });
}

std::array<std::atomic<int>, kMaxDevices> flags{};

void check_flags_can_be_used(const char* what) {
  const int device = resolve_device(std::nullopt).index();
  const std::string& launch = devices().config().launch;
  TORCH_CHECK(launch == "auto", what, ": under the launch mode '", launch,
              "' the thread that is to clear the flag would wait for it itself; use TORCH_LOOM_LAUNCH=auto");
  TORCH_CHECK(!translated([&] { return runtime::is_captured(runtime::current_stream_of(device)); }), what,
              " cannot be captured by a graph: no replay would end");
}

void busy_wait_for_flag() {
  check_flags_can_be_used("_busy_wait_for_flag()");
  std::atomic<int>& flag = flags[static_cast<size_t>(resolve_device(std::nullopt).index())];
  // Set now and not when the wait begins: whatever clears it afterwards ends the wait.
  flag.store(1);
  submit_aside("busy_wait_for_flag", [&flag] { flag.wait(1); });
}

void clear_flag() {
  check_flags_can_be_used("_clear_flag()");
  std::atomic<int>& flag = flags[static_cast<size_t>(resolve_device(std::nullopt).index())];
  submit_aside("clear_flag", [&flag] {
    flag.store(0);
    flag.notify_all();
  });
}

// This process is there also where it could not publish what it does.
std::vector<telemetry::Process> processes(const std::string& machine) {
  std::vector<telemetry::Process> found = telemetry::processes(machine);
  const int own = getpid();
  if (std::none_of(found.begin(), found.end(), [own](const auto& process) { return process.pid == own; })) {
    std::vector<telemetry::Process> mine = telemetry::parse(runtime::activity_board::snapshot(), own);
    found.insert(found.begin(), mine.begin(), mine.end());
  }
  return found;
}

}  // namespace

void bind_busy(py::module_& m) {
  namespace board = runtime::activity_board;
  m.def("sleep", guarded([](int64_t nanoseconds) {
          py::gil_scoped_release no_gil;
          sleep(nanoseconds, "sleep");
        }));
  m.def("busy_wait_for_flag", guarded([] {
          py::gil_scoped_release no_gil;
          busy_wait_for_flag();
        }));
  m.def("clear_flag", guarded([] {
          py::gil_scoped_release no_gil;
          clear_flag();
        }));
  m.def("activity", [] { return py::bytes(board::snapshot()); });
  m.def("activity_bytes", [] { return board::bytes(); });
  m.def("publish_activity", guarded([](int file) { translated([&] { board::publish(file); }); }));
  m.def("activity_processes", [](const std::string& machine) {
    py::list found;
    for (const telemetry::Process& process : processes(machine)) {
      found.append(py::make_tuple(process.physical, process.pid, process.memory_bytes, process.capacity_bytes,
                                  py::bytes(process.chip)));
    }
    return found;
  });
  m.def("busy_share", [](const std::string& machine, int physical, uint64_t now) {
    std::vector<telemetry::Process> found = processes(machine);
    std::erase_if(found, [&](const telemetry::Process& process) { return process.physical != physical; });
    const telemetry::Busy busy = telemetry::busy_share(found, now);
    return py::make_tuple(busy.kernels, busy.kernels_or_copies);
  });
  m.def("clock_ticks", [] {
    const double per_second = runtime::clock::ticks_per_second();
    return py::make_tuple(runtime::clock::host_ticks(), per_second);
  });
}

}  // namespace loom::glue
