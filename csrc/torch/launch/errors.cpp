// CUDA's errors by number: their names and texts, and the last one of each thread.
#include <loom_cuda/error_codes.h>

#include <algorithm>
#include <memory>
#include <mutex>

#include "runtime/tape.h"
#include "torch/launch/blas_handle.h"
#include "torch/launch/launch.h"

namespace loom::glue {

namespace {

struct Known {
  int error;
  const char* name;
  const char* text;
};
constexpr Known kKnown[] = {
#define LOOM_KNOWN(name, number, text) {number, #name, text},
    LOOM_CUDA_ERRORS(LOOM_KNOWN)
#undef LOOM_KNOWN
};

const Known* find(int error) {
  const auto* const found = std::find_if(std::begin(kKnown), std::end(kKnown),
                                         [&](const Known& known) { return known.error == error; });
  return found == std::end(kKnown) ? nullptr : found;
}

struct Last {
  int error = 0;
  bool is_refused_launch = false;  // and not yet taken
  bool is_launching = false;       // a kernel of the program's own
  // Of the error that was noted last, also after it was taken: who checks it gets its number first.
  int cause_error = 0;
  std::exception_ptr cause;
  BlasOfThread blas;
};
// On a pointer: there is little room for variables of threads.
Last& last() {
  thread_local std::unique_ptr<Last> instance;
  if (instance == nullptr) instance = std::make_unique<Last>();
  return *instance;
}

// Launches give their errors to who asks. Who does not learns it where PyTorch asks: after a kernel of its
// own.
class RefusedLaunches final : public runtime::TapeReader {
 public:
  RefusedLaunches() : TapeReader(runtime::kinds_of({runtime::CommandKind::kKernel})) {}
  void begin(const runtime::Command&) override {
    if (!last().is_refused_launch || last().is_launching) return;
    const std::exception_ptr cause = take_error_cause(take_last_error());
    if (cause != nullptr) std::rethrow_exception(cause);
  }
};

}  // namespace

BlasOfThread& blas_of_thread() { return last().blas; }

LaunchScope::LaunchScope() { last().is_launching = true; }
LaunchScope::~LaunchScope() { last().is_launching = false; }

int refuse_launch(int error, std::exception_ptr cause) {
  set_last_error(error, std::move(cause));
  last().is_refused_launch = true;
  static auto* const reader = new std::shared_ptr<RefusedLaunches>(std::make_shared<RefusedLaunches>());
  static std::once_flag once;
  std::call_once(once, [] { runtime::tape::attach(*reader); });
  return error;
}

int set_last_error(int error, std::exception_ptr cause) {
  last().is_refused_launch = false;
  last().error = error;
  last().cause_error = error;
  last().cause = std::move(cause);
  return error;
}

int take_last_error() {
  last().is_refused_launch = false;
  return std::exchange(last().error, 0);
}
int peek_last_error() { return last().error; }

std::exception_ptr take_error_cause(int error) {
  return last().cause_error == error ? std::exchange(last().cause, nullptr) : nullptr;
}

const char* error_text(int error) {
  const Known* const known = find(error);
  return known == nullptr ? "unrecognized error code" : known->text;
}
const char* error_name(int error) {
  const Known* const known = find(error);
  return known == nullptr ? "unrecognized error code" : known->name;
}

}  // namespace loom::glue
