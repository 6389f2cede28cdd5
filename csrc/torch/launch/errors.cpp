// CUDA's errors by number: their names and texts, and the last one of each thread.
#include <algorithm>
#include <memory>

#include "torch/launch/launch.h"

namespace loom::glue {

namespace {

struct Known {
  int error;
  const char* name;
  const char* text;
};
// Names and texts are CUDA's (CUDA Runtime API, enum cudaError).
constexpr Known kKnown[] = {
    {0, "cudaSuccess", "no error"},
    {1, "cudaErrorInvalidValue", "invalid argument"},
    {2, "cudaErrorMemoryAllocation", "out of memory"},
    {3, "cudaErrorInitializationError", "initialization error"},
    {9, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {13, "cudaErrorInvalidSymbol", "invalid device symbol"},
    {17, "cudaErrorInvalidDevicePointer", "invalid device pointer"},
    {98, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {100, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {101, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {400, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {600, "cudaErrorNotReady", "device not ready"},
    {700, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {701, "cudaErrorLaunchOutOfResources", "too many resources requested for launch"},
    {702, "cudaErrorLaunchTimeout", "the launch timed out and was terminated"},
    {710, "cudaErrorAssert", "device-side assert triggered"},
    {716, "cudaErrorMisalignedAddress", "misaligned address"},
    {719, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {720, "cudaErrorCooperativeLaunchTooLarge", "too many blocks in cooperative launch"},
    {801, "cudaErrorNotSupported", "operation not supported"},
    {900, "cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"},
    {901, "cudaErrorStreamCaptureInvalidated", "operation failed due to a previous error during capture"},
    {999, "cudaErrorUnknown", "unknown error"},
};

const Known* find(int error) {
  const auto* const found = std::find_if(std::begin(kKnown), std::end(kKnown),
                                         [&](const Known& known) { return known.error == error; });
  return found == std::end(kKnown) ? nullptr : found;
}

struct Last {
  int error = 0;
  // Of the error that was noted last, also after it was taken: who checks it gets its number first.
  int cause_error = 0;
  std::exception_ptr cause;
};
// On a pointer: there is little room for variables of threads.
Last& last() {
  thread_local std::unique_ptr<Last> instance;
  if (instance == nullptr) instance = std::make_unique<Last>();
  return *instance;
}

}  // namespace

int set_last_error(int error, std::exception_ptr cause) {
  last().error = error;
  last().cause_error = error;
  last().cause = std::move(cause);
  return error;
}

int take_last_error() { return std::exchange(last().error, 0); }
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
