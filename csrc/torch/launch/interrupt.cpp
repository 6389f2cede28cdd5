#include "torch/launch/interrupt.h"

#include <pthread.h>
#include <semaphore.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <mutex>
#include <thread>

namespace loom::glue {

namespace {

std::atomic<int> num_running{0};
std::atomic<uint64_t> num_ended{0};
sem_t interrupts;
struct sigaction before;

void handle(int number, siginfo_t* info, void* context) {
  if (num_running.load(std::memory_order_relaxed) > 0) sem_post(&interrupts);
  if ((before.sa_flags & SA_SIGINFO) != 0) {
    before.sa_sigaction(number, info, context);
  } else if (before.sa_handler != SIG_IGN && before.sa_handler != SIG_DFL) {
    before.sa_handler(number);
  }
}

[[noreturn]] void watch() {
  constexpr int kSteps = 30;
  while (true) {
    while (sem_wait(&interrupts) != 0) {
    }
    const uint64_t ended = num_ended.load();
    int step = 0;
    while (step < kSteps && num_running.load() > 0 && num_ended.load() == ended) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      ++step;
    }
    if (step < kSteps) continue;
    constexpr char kText[] =
        "torch-loom: Ctrl-C: a kernel still runs, and nothing can stop it: the program ends\n";
    [[maybe_unused]] const auto written = write(STDERR_FILENO, kText, sizeof(kText) - 1);
    std::signal(SIGINT, SIG_DFL);
    kill(getpid(), SIGINT);
  }
}

void begin_watch() {
  sem_init(&interrupts, 0, 0);
  std::thread(watch).detach();
}

void install() {
  struct sigaction known;
  if (sigaction(SIGINT, nullptr, &known) != 0) return;
  // Where it ends the process anyway, or is ignored on purpose, nothing is to be done.
  const bool is_handled =
      (known.sa_flags & SA_SIGINFO) != 0 || (known.sa_handler != SIG_DFL && known.sa_handler != SIG_IGN);
  if (!is_handled) return;
  before = known;
  begin_watch();
  // Threads do not come along into a forked child.
  pthread_atfork(nullptr, nullptr, &begin_watch);
  struct sigaction own = known;
  own.sa_flags |= SA_SIGINFO;
  own.sa_sigaction = &handle;
  sigaction(SIGINT, &own, nullptr);
}

}  // namespace

RunningKernel::RunningKernel() {
  static std::once_flag once;
  std::call_once(once, install);
  num_running.fetch_add(1);
}

RunningKernel::~RunningKernel() {
  num_ended.fetch_add(1);
  num_running.fetch_sub(1);
}

}  // namespace loom::glue
