// The one point that every command of a device passes on its way to the driver: here the tape hears of it,
// and a stream that is being captured keeps it instead of running it.
#pragma once

#include "driver/driver.h"
#include "runtime/tape.h"

namespace loom::runtime {

struct StreamRef {
  int device;  // logical index
  int64_t id;  // 0 is the default stream
  bool operator==(const StreamRef& other) const { return device == other.device && id == other.id; }
};

// The stream that work of this thread goes to.
StreamRef current_stream_of(int device) noexcept;

// True when a kernel submitted now would run in this thread, before submit() returns.
bool runs_in_place(StreamRef stream);
// True when what is submitted to the stream is kept by a graph.
bool is_captured(StreamRef stream);

// As the driver's methods of the same names. While the stream is captured: a kernel is kept, to be run at
// each replay (its `run` is called any number of times before its `release`); one that must run in place, a
// copy of pageable memory, a query and a synchronisation throw CaptureError and end the capture.
void submit(StreamRef stream, const driver::Kernel& kernel, const Operand* operands = nullptr,
            size_t num_operands = 0);
void copy(StreamRef stream, void* destination, const void* source, size_t bytes);
void fill(StreamRef stream, void* destination, uint8_t value, size_t bytes);
bool query_stream(StreamRef stream);
void synchronize_stream(StreamRef stream);
// All streams of a device.
void synchronize_device(int device);

// For streams of this device, and of others with its driver.
driver::Event create_event(int device, driver::EventOptions options);
// A stream that waits for an event of a captured stream is captured from then on.
void record_event(driver::Event event, StreamRef stream);
void wait_event(StreamRef stream, driver::Event event);
bool query_event(driver::Event event);
void synchronize_event(driver::Event event);
int64_t elapsed_ns(driver::Event start, driver::Event end);
void destroy_event(driver::Event event);

}  // namespace loom::runtime
