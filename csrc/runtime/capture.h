// Which streams are being captured, and what their captures keep. commands.cpp asks here.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "driver/driver.h"
#include "runtime/commands.h"
#include "runtime/graph.h"

namespace loom::runtime {

// Which calls that may wait for a device are refused while a capture is under way, besides those that concern
// its streams and events: those of any thread, of the capturing thread, none.
enum class CaptureMode : uint8_t { kGlobal, kThreadLocal, kRelaxed };

// A capture under way.
struct Capture;
using CaptureRef = std::shared_ptr<Capture>;

namespace capture {

extern std::atomic<int> num_captures;

inline bool is_underway() noexcept { return num_captures.load(std::memory_order_relaxed) != 0; }

// --- for graphs ---

// From now on what is submitted to `stream` is kept, and memory taken for it comes from the private pool
// `pool`, of which this is one use. `owner` is what owner_of() answers. Throws CaptureError for the default
// stream and for a captured stream.
CaptureRef begin(StreamRef stream, CaptureMode mode, PoolId pool, void* owner);
// Ends it, whatever happens; returns what it kept. Throws CaptureError when it failed before, was not begun
// on `stream` or by this thread (unless relaxed), or streams that joined it were not waited for; then the use
// of the pool is ended, too.
std::shared_ptr<Recording> end(const CaptureRef& capture, StreamRef stream);
// Ends it and drops what it kept.
void abort(const CaptureRef& capture) noexcept;
// All that are under way: the devices that they are on are about to go.
void abort_all() noexcept;
// The owner of the capture of a stream, or null.
void* owner_of(StreamRef stream);

// --- for commands ---

// The capture that keeps what is submitted to a stream, or null.
CaptureRef of(StreamRef stream);
// Append to it. Throw CaptureError when it has failed or ended; the kernel is released then.
void keep(Capture& capture, StreamRef stream, const driver::Kernel& kernel, const KernelRecord& record,
          std::span<const Operand> outputs);
void keep_copy(Capture& capture, StreamRef stream, void* destination, const void* source, size_t bytes);
void keep_fill(Capture& capture, StreamRef stream, void* destination, uint8_t value, size_t bytes);

// Throw CaptureError, and make the captures that it concerns fail, when this thread must not do `what` now:
// it is about a captured stream or event, or a capture's mode forbids it.
void forbid_on_device(int device, const std::string& what);
void forbid_on(StreamRef stream, const std::string& what);
void forbid_on(driver::Event event, const std::string& what);
// The same when memory for `stream` would be taken from the driver and no capture takes it for itself.
void forbid_memory(StreamRef stream);

// An event recorded on a captured stream belongs to the capture until it is recorded elsewhere or the capture
// ends. Returns true then; the driver does not record it.
bool keep_record(driver::Event event, StreamRef stream);
// Waiting for such an event makes `stream` captured as well; true then. Throws CaptureError when the default
// stream would become captured, two captures would merge, or a capture wait for work outside of it.
bool keep_wait(StreamRef stream, driver::Event event);
// Whether an event belongs to a capture.
bool is_marked(driver::Event event);
void forget(driver::Event event);

// While it lives, this thread may do what only a capture's mode forbids: for housekeeping that touches none
// of its streams.
class Relaxed {
 public:
  Relaxed();
  ~Relaxed();
  Relaxed(const Relaxed&) = delete;
  Relaxed& operator=(const Relaxed&) = delete;
};

}  // namespace capture

}  // namespace loom::runtime
