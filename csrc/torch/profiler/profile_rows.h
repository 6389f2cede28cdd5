// The rows of a trace that a profile's records become.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "torch/core/kineto_headers.h"
#include "torch/profiler/profile_recorder.h"

namespace loom::glue {

class ProfileRows {
 public:
  // `host_offset_ns`: what turns the host's times into those since 1970. `is_simulated`: the devices' times
  // are not the host's. `types`: which rows are wanted.
  ProfileRows(int64_t host_offset_ns, bool is_simulated, const std::set<libkineto::ActivityType>& types,
              libkineto::getLinkedActivityCallback find_op);

  // Turns records, in the order of their issue, into rows.
  void add(const std::deque<ProfileRecorder::Record>& records);
  // What names the rows of a device.
  static libkineto::DeviceInfo device_info(int device);
  // Hands the rows to a logger, and names them, except device 0. It keeps pointers to them: what buffer()
  // returns must live as long.
  void log(libkineto::ActivityLogger& logger, int64_t start_ns);
  std::unique_ptr<libkineto::CpuTraceBuffer> buffer() { return std::move(buffer_); }

 private:
  using Record = ProfileRecorder::Record;
  using Activity = libkineto::GenericTraceActivity;
  using Row = std::pair<int, int64_t>;  // device and stream

  using Records = std::deque<Record>;

  // Like all times below, in nanoseconds since 1970.
  struct Span {
    int64_t start_ns, end_ns;
  };

  Activity& make(libkineto::ActivityType type, const std::string& name, Span span);
  bool wants(libkineto::ActivityType type) const { return types_.count(type) != 0; }
  bool wants_calls() const { return has_runtime_activity(types_); }

  void move_behind_calls(Records::const_iterator first, Records::const_iterator last);
  void add(const Record& record);
  void add_launch(const Record& record, uint32_t flow);
  void add_work(const Record& record, uint32_t flow);
  void add_wait(const Record& record, uint32_t flow);
  void annotate(const Record& record);
  void add_annotations();

  const int64_t host_offset_ns_;
  const bool is_simulated_;
  int64_t device_offset_ns_;  // what turns the devices' times into those since 1970; never falls
  const std::set<libkineto::ActivityType> types_;
  const libkineto::getLinkedActivityCallback find_op_;
  std::unique_ptr<libkineto::CpuTraceBuffer> buffer_;
  std::set<Row> rows_;
  // By thread, device and stream: the graph launch that the records of its commands follow.
  std::map<std::pair<int32_t, Row>, uint32_t> replays_;
  // The moment to which each stream's work is known, and each event's stream when it was recorded.
  std::map<Row, int64_t> reached_ns_;
  std::unordered_map<const void*, std::pair<Row, int64_t>> events_;
  // A range on a row of a device.
  struct Annotation {
    std::shared_ptr<const OpenRange> range;
    int64_t began_ns, ended_ns;  // by the device's clock
    int64_t offset_ns;           // of its first command
  };
  std::map<std::pair<const OpenRange*, Row>, Annotation> annotations_;
};

}  // namespace loom::glue
