// A graph: commands kept by a capture, run again by each replay as one kernel, in the order in which they
// were captured (which respects every dependency that the capture saw).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "driver/driver.h"
#include "runtime/commands.h"
#include "runtime/kept_record.h"
#include "runtime/memory/memory_history.h"
#include "runtime/timing.h"

namespace loom::runtime {

// A command that a graph keeps.
struct Node {
  CommandKind kind;  // kKernel, kCopy or kFill
  std::string name;
  StreamRef stream;               // that it was captured on
  std::vector<uint32_t> after{};  // nodes that must have run, by their place in the recording
  driver::Kernel kernel{};        // kKernel
  KeptRecord record{};            // kKernel
  int64_t said_ns = -1;           // kKernel: see simulated::Said
  void* destination = nullptr;    // kCopy, kFill
  const void* source = nullptr;
  size_t bytes = 0;
  uint8_t value = 0;
};

// What one capture kept. Changed by the capture alone; then shared by the replays under way.
class Recording {
 public:
  Recording() = default;
  // Releases the kernels.
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  uint32_t add(Node node);
  const std::vector<Node>& nodes() const { return nodes_; }
  // Runs the nodes, one after the other, in this thread, as part of a kernel of `stream`. What a node throws
  // ends the run. `times`: where those of each node go, or empty.
  void run(driver::Driver& driver, driver::Stream stream, const std::vector<timing::Shared>& times) const;
  // Reports each to the tape as a command of `stream`. Returns the times that readers want; empty if none do.
  std::vector<timing::Shared> notify(StreamRef stream) const;
  // Graphviz's language: a box for each node, an arrow for each dependency.
  std::string to_dot() const;

 private:
  std::vector<Node> nodes_;
};

// One replay on its way. A derived class prepares in its thread what the kernels need.
class Replay {
 public:
  explicit Replay(std::shared_ptr<const Recording> recording) : recording_(std::move(recording)) {}
  virtual ~Replay() = default;
  virtual void run() { recording_->run(*driver_, stream_, times_); }

 protected:
  const std::shared_ptr<const Recording> recording_;

 private:
  friend class ReplayQueue;
  driver::Driver* driver_ = nullptr;
  driver::Stream stream_ = nullptr;  // that the replay was submitted to
  std::vector<timing::Shared> times_;
};

// The replays of one recording: never two at a time, on whichever streams.
class ReplayQueue {
 public:
  // Of a graph of this device.
  explicit ReplayQueue(int device);
  ~ReplayQueue();
  ReplayQueue(const ReplayQueue&) = delete;
  ReplayQueue& operator=(const ReplayQueue&) = delete;

  // Submits one kernel to `stream`: what `make` returns, which is asked in the order of the replays. Throws
  // CaptureError while the stream is captured.
  void submit(StreamRef stream, const Recording& recording,
              const std::function<std::unique_ptr<Replay>()>& make);

 private:
  std::mutex mutex_;
  const driver::Event finished_;  // recorded behind each replay
  bool has_replayed_ = false;
  StreamRef last_stream_{-1, -1};
};

}  // namespace loom::runtime
