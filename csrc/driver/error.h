// The failures of driver and runtime. The torch glue turns them into PyTorch's own exception types.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

// Visible, so that a driver in a library of its own throws the same types.
namespace __attribute__((visibility("default"))) loom {

  struct Error : std::runtime_error {
    using std::runtime_error::runtime_error;
  };

  // The caller passed something that is not allowed; the message holds the value and what is allowed.
  struct InvalidArgument : Error {
    using Error::Error;
  };

  // Asked about work that has not finished.
  struct NotReady : Error {
    using Error::Error;
  };

  // The driver cannot do this at all; the message says why.
  struct NotSupported : Error {
    using Error::Error;
  };

  // The device is in a state in which it cannot be used: in a forked child, or where a failure is sticky.
  struct Unusable : Error {
    using Error::Error;
  };

  // Not allowed while a stream is being captured by a graph, or a capture went wrong.
  struct CaptureError : Error {
    // CUDA's number, name and words for what went wrong.
    struct Kind {
      int number;
      const char *name, *sentence;
    };
    CaptureError(const Kind& kind, const std::string& detail)
        : Error(std::string(kind.sentence) + " (" + detail + ")"), kind(kind), detail(detail) {}

    Kind kind;
    std::string detail;  // what was refused or wrong
  };

  // Memory or an event of another process cannot be shared, or no longer exists.
  struct SharingError : Error {
    using Error::Error;
  };

  // The process that shared it has ended, or has freed it.
  struct SharerGone : SharingError {
    using SharingError::SharingError;
  };

  // Device (or pinned host) memory has run out.
  struct OutOfMemory : Error {
    OutOfMemory(const std::string& message, int device, int64_t asked_bytes, int64_t free_bytes,
                int64_t total_bytes)
        : Error(message),
          device(device),
          asked_bytes(asked_bytes),
          free_bytes(free_bytes),
          total_bytes(total_bytes) {}
    int device;  // -1: host memory
    int64_t asked_bytes, free_bytes, total_bytes;
  };

}  // namespace loom
