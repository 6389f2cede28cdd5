// Which streams are being captured, and by which graph. commands.cpp asks here.
#pragma once

#include <atomic>

#include "driver/driver.h"
#include "runtime/commands.h"

namespace loom::runtime {

class Graph;

namespace capture {

extern std::atomic<int> num_captures;

inline bool is_underway() noexcept { return num_captures.load(std::memory_order_relaxed) != 0; }

// The graph that keeps what is submitted to a stream, or null.
Graph* graph_of(StreamRef stream);
// Appends to that graph.
void keep(Graph& graph, StreamRef stream, const driver::Kernel& kernel);
void keep_copy(Graph& graph, StreamRef stream, void* destination, const void* source, size_t bytes);
void keep_fill(Graph& graph, StreamRef stream, void* destination, uint8_t value, size_t bytes);

// Throws CaptureError, and makes the captures it concerns fail, when this thread must not do `what` now: it
// is about a captured stream, or a capture's mode forbids it (global: any thread's, thread_local: this
// thread's).
void forbid(const char* what);
void forbid_on(StreamRef stream, const char* what);
void forbid_on(driver::Event event, const char* what);

// An event recorded on a captured stream belongs to the capture; true when it does, and then the driver is
// not told.
bool keep_record(driver::Event event, StreamRef stream);
// Waiting for such an event makes `stream` captured as well.
bool keep_wait(StreamRef stream, driver::Event event);
void forget(driver::Event event);

}  // namespace capture

}  // namespace loom::runtime
