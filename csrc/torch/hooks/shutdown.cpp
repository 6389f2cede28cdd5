#include "torch/hooks/shutdown.h"

#include <torch/csrc/autograd/engine.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

namespace loom::glue {

namespace {

// The engine detaches its threads; their name, which the system keeps, is what is left to find them by.
bool has_autograd_threads() {
  std::error_code error;
  // A thread may end while this reads: what cannot be read is not there any more.
  for (std::filesystem::directory_iterator task("/proc/self/task", error), end; !error && task != end;
       task.increment(error)) {
    std::string name;
    std::ifstream comm(task->path() / "comm");
    std::getline(comm, name);
    if (name.rfind("pt_autograd", 0) == 0) return true;
  }
  return false;
}

}  // namespace

void stop_autograd_threads() {
  torch::autograd::Engine::get_default_engine().stop();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  while (has_autograd_threads() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace loom::glue
