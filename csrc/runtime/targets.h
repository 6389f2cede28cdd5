// What commands.cpp and waiting.cpp share: a stream as its driver knows it, and the capture that keeps it.
#pragma once

#include "runtime/blocking.h"
#include "runtime/capture.h"
#include "runtime/commands.h"
#include "runtime/runtime.h"

namespace loom::runtime {

struct Target {
  explicit Target(StreamRef stream)
      : device(get().device(stream.device)), driver(device.driver()), stream(device.stream(stream.id)) {}
  Device& device;
  driver::Driver& driver;
  const driver::Stream stream;
};

// Null unless the stream is being captured.
inline CaptureRef capture_of(StreamRef stream) {
  return capture::is_underway() ? capture::of(stream) : nullptr;
}

// Before a command that keeps the host until its turn has come: it waits here, where the program may end the
// wait. A failure stays with the stream, for the command to raise.
inline void wait_for_turn(const Target& to) {
  if (to.driver.runs_in_place(to.stream)) return;
  const Interruptible wait;
  to.driver.synchronize_stream(to.stream, driver::OnFailure::kKeep);
}

// Reports that the stream was found finished.
inline void note_finished(StreamRef stream) {
  if (tape::is_told(CommandKind::kQueryStream)) [[unlikely]] {
    tape::note(describe(CommandKind::kQueryStream, stream.device, stream.id));
  }
}

}  // namespace loom::runtime
