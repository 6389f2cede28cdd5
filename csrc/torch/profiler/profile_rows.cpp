#include "torch/profiler/profile_rows.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <string_view>

#include "torch/core/device.h"

namespace loom::glue {

namespace {

using libkineto::ActivityType;
using runtime::CommandKind;

// PyTorch looks these ids up in one map with its own: they start beyond those, and no profile repeats them.
uint32_t next_flow() {
  constexpr uint32_t kFirst = 1U << 30;
  static std::atomic<uint32_t> count{0};
  return kFirst + count.fetch_add(1, std::memory_order_relaxed) % kFirst;
}

// The row of what concerns all streams of a device. Kineto takes no negative ones, and has those of its own
// from a million on.
constexpr int64_t kAllStreams = 999999;

std::string call_name(CommandKind kind) {
  const std::string device = device_name();
  switch (kind) {
    case CommandKind::kCopy:
      return device + "MemcpyAsync";
    case CommandKind::kFill:
      return device + "MemsetAsync";
    case CommandKind::kRecordEvent:
      return device + "EventRecord";
    case CommandKind::kWaitEvent:
      return device + "StreamWaitEvent";
    case CommandKind::kSynchronizeStream:
      return device + "StreamSynchronize";
    case CommandKind::kSynchronizeEvent:
      return device + "EventSynchronize";
    case CommandKind::kSynchronizeDevice:
      return device + "DeviceSynchronize";
    case CommandKind::kReplay:
      return device + "GraphLaunch";
    default:
      return device + "LaunchKernel";
  }
}

// An op's kernel, unlike the op itself in every table. Under CUDA's name those for lists of tensors and for
// matrix products have the names by which tools look for CUDA's.
std::string kernel_name(const std::string& op_name, runtime::ShapeClass shape_class) {
  constexpr std::string_view kAten = "aten::", kForeach = "_foreach_";
  const bool is_aten = op_name.compare(0, kAten.size(), kAten) == 0;
  const std::string own = is_aten ? op_name.substr(kAten.size()) : op_name;
  // Tools look for NCCL's kernels by their names alone.
  if (own.starts_with("ncclDevKernel")) return own;
  const std::string prefix = device_name() + "::";
  if (device_type() != c10::DeviceType::CUDA) return prefix + own;
  if (own.compare(0, kForeach.size(), kForeach) == 0)
    return prefix + "multi_tensor_apply_kernel<" + own + ">";
  if (shape_class == runtime::ShapeClass::kMatmul) return prefix + "gemm<" + own + ">";
  return prefix + own;
}

bool is_work(CommandKind kind) {
  return kind == CommandKind::kKernel || kind == CommandKind::kCopy || kind == CommandKind::kFill;
}

// Whether the host waited for what it issued: what it issues next is after that.
bool is_waited_for(const ProfileRecorder::Record& record) {
  switch (record.kind) {
    case CommandKind::kSynchronizeStream:
    case CommandKind::kSynchronizeEvent:
    case CommandKind::kSynchronizeDevice:
      return true;
    default: {
      const runtime::CommandTimes& times = *record.times;
      return is_work(record.kind) && times.ended_ns >= 0 && times.ended_ns <= times.returned_ns;
    }
  }
}

}  // namespace

ProfileRows::ProfileRows(int64_t host_offset_ns, bool is_simulated, const std::set<ActivityType>& types,
                         libkineto::getLinkedActivityCallback find_op)
    : host_offset_ns_(host_offset_ns),
      is_simulated_(is_simulated),
      device_offset_ns_(is_simulated ? std::numeric_limits<int64_t>::min() : host_offset_ns),
      types_(types),
      find_op_(std::move(find_op)),
      buffer_(std::make_unique<libkineto::CpuTraceBuffer>()) {
  buffer_->span.name = device_name_upper();
  buffer_->span.iteration = 0;
  buffer_->gpuOpCount = 0;
}

ProfileRows::Activity& ProfileRows::make(ActivityType type, const std::string& name, Span span) {
  buffer_->emplace_activity(buffer_->span, type, name);
  Activity& activity = *buffer_->activities.back();
  activity.startTime = span.start_ns;
  activity.endTime = std::max(span.start_ns, span.end_ns);
  libkineto::TraceSpan& whole = buffer_->span;
  whole.startTime =
      buffer_->activities.size() == 1 ? activity.startTime : std::min(whole.startTime, activity.startTime);
  whole.endTime = std::max(whole.endTime, activity.endTime);
  return activity;
}

// Simulated time and the host's are different times. A device's work keeps its durations and distances, and
// stands behind the calls that issued it: between two waits of the host all of it is moved by as much as the
// call that came latest asks for.
void ProfileRows::move_behind_calls(Records::const_iterator first, Records::const_iterator last) {
  for (; first != last; ++first) {
    const runtime::CommandTimes& times = *first->times;
    device_offset_ns_ = std::max(device_offset_ns_, times.host_issued_ns - times.issued_ns + host_offset_ns_);
  }
}

void ProfileRows::add(const Records& records) {
  for (auto first = records.begin(); first != records.end();) {
    auto last = std::find_if(first, records.end(), is_waited_for);
    if (last != records.end()) ++last;
    if (is_simulated_) move_behind_calls(first, last);
    for (; first != last; ++first) add(*first);
  }
  add_annotations();
}

void ProfileRows::add(const Record& record) {
  const auto key = std::pair(record.thread, Row(record.device, record.stream));
  const bool is_replayed = is_work(record.kind) && record.times->returned_ns < 0;
  const uint32_t flow = is_replayed ? replays_[key] : next_flow();
  if (record.kind == CommandKind::kReplay) replays_[key] = flow;
  if (!is_replayed) add_launch(record, flow);
  if (is_work(record.kind)) {
    add_work(record, flow);
  } else {
    add_wait(record, flow);
  }
}

// The call on the host's row, where the flow to the device's begins.
void ProfileRows::add_launch(const Record& record, uint32_t flow) {
  if (!wants_calls()) return;
  const runtime::CommandTimes& times = *record.times;
  Activity& call = make(runtime_activity(), call_name(record.kind),
                        {times.host_issued_ns + host_offset_ns_, times.host_returned_ns + host_offset_ns_});
  call.device = libkineto::processId();
  call.resource = record.thread;
  call.threadId = record.thread;
  call.id = static_cast<int32_t>(flow);
  call.linked = record.op == 0 ? nullptr : find_op_(static_cast<int32_t>(record.op));
  if (is_work(record.kind) || record.kind == CommandKind::kReplay) {
    call.flow.id = flow;
    call.flow.type = libkineto::kLinkAsyncCpuGpu;
    call.flow.start = 1;
  }
  call.addMetadata("correlation", flow);
}

// What ran on a stream, when it ran there.
void ProfileRows::add_work(const Record& record, uint32_t flow) {
  const runtime::CommandTimes& times = *record.times;
  if (times.ended_ns < 0) return;  // dropped, or never submitted
  const int64_t began_ns = times.began_ns + device_offset_ns_, ended_ns = times.ended_ns + device_offset_ns_;
  const Row row(record.device, record.stream);
  int64_t& reached_ns = reached_ns_[row];
  reached_ns = std::max(reached_ns, ended_ns);
  annotate(record);
  const auto [type, name] = [&]() -> std::pair<ActivityType, std::string> {
    if (record.kind == CommandKind::kCopy) return {ActivityType::GPU_MEMCPY, record.direction};
    if (record.kind == CommandKind::kFill) return {ActivityType::GPU_MEMSET, "Memset (Device)"};
    // A kernel of the program's own has the name that the program gave it.
    return {ActivityType::CONCURRENT_KERNEL,
            record.grid.empty() ? kernel_name(record.name, record.shape_class) : record.name};
  }();
  if (!wants(type)) return;
  rows_.insert(row);
  Activity& work = make(type, name, {began_ns, ended_ns});
  work.device = record.device;
  work.resource = static_cast<int32_t>(record.stream);
  work.id = static_cast<int32_t>(flow);
  work.linked = record.op == 0 ? nullptr : find_op_(static_cast<int32_t>(record.op));
  if (wants_calls()) {
    work.flow.id = flow;
    work.flow.type = libkineto::kLinkAsyncCpuGpu;
    work.flow.start = 0;
  }
  work.addMetadata("device", record.device);
  work.addMetadata("stream", record.stream);
  work.addMetadata("correlation", flow);
  work.addMetadata("queued", times.issued_ns + device_offset_ns_);
  if (!record.grid.empty()) work.addMetadata("grid", record.grid);
  if (!record.block.empty()) work.addMetadata("block", record.block);
  if (record.kind == CommandKind::kKernel) return;
  work.addMetadata("bytes", record.bytes);
  if (ended_ns > began_ns) {
    work.addMetadata("memory bandwidth (GB/s)",
                     static_cast<double>(record.bytes) / static_cast<double>(ended_ns - began_ns));
  }
}

// Synchronisations. When a stream waited for another is worked out: from when its own work was done until
// that of the event was.
void ProfileRows::add_wait(const Record& record, uint32_t flow) {
  const runtime::CommandTimes& times = *record.times;
  Row row(record.device, record.stream);
  const int64_t issued_ns = times.issued_ns + device_offset_ns_;
  Span span{issued_ns, times.returned_ns + device_offset_ns_};
  std::string name;
  switch (record.kind) {
    case CommandKind::kRecordEvent:
      events_[record.event] = {row, std::max(reached_ns_[row], issued_ns)};
      return;
    case CommandKind::kWaitEvent: {
      const auto recorded = events_.find(record.event);
      if (recorded == events_.end()) return;
      int64_t& reached_ns = reached_ns_[row];
      span = {std::max(reached_ns, issued_ns), recorded->second.second};
      if (span.end_ns <= span.start_ns) return;
      reached_ns = span.end_ns;
      name = "Stream Wait Event";
      break;
    }
    case CommandKind::kSynchronizeEvent: {
      const auto recorded = events_.find(record.event);
      if (recorded == events_.end()) return;
      row = recorded->second.first;
      name = "Event Sync";
      break;
    }
    case CommandKind::kSynchronizeStream:
      name = "Stream Sync";
      break;
    case CommandKind::kSynchronizeDevice:
      row.second = kAllStreams;
      name = "Device Sync";
      break;
    default:
      return;
  }
  if (!wants(ActivityType::CONCURRENT_KERNEL)) return;
  rows_.insert(row);
  Activity& wait = make(ActivityType::CUDA_SYNC, name, span);
  wait.device = row.first;
  wait.resource = static_cast<int32_t>(row.second);
  wait.id = static_cast<int32_t>(flow);
  wait.addMetadata("device", row.first);
  wait.addMetadata("stream", row.second == kAllStreams ? -1 : row.second);
  wait.addMetadata("hidden", 1);  // from tables: it is no time in which the device worked
  wait.addMetadata("correlation", flow);
}

// The ranges around a command reach from their first command on its row to the last. Their length is the
// device's time: without the time of this machine's host where the host has waited in between.
void ProfileRows::annotate(const Record& record) {
  const Row row(record.device, record.stream);
  const int64_t began_ns = record.times->began_ns, ended_ns = record.times->ended_ns;
  for (const auto& chain : {record.scopes, record.ranges}) {
    for (std::shared_ptr<const OpenRange> range = chain; range != nullptr; range = range->outer) {
      Annotation& whole =
          annotations_
              .try_emplace({range.get(), row}, Annotation{range, began_ns, ended_ns, device_offset_ns_})
              .first->second;
      whole.began_ns = std::min(whole.began_ns, began_ns);
      whole.ended_ns = std::max(whole.ended_ns, ended_ns);
    }
  }
}

void ProfileRows::add_annotations() {
  if (!wants(ActivityType::GPU_USER_ANNOTATION)) return;
  for (const auto& [key, annotation] : annotations_) {
    const std::shared_ptr<const OpenRange>& range = annotation.range;
    std::string name = range->name;
    if (range->correlation != 0) {
      const libkineto::ITraceActivity* scope = find_op_(static_cast<int32_t>(range->correlation));
      if (scope == nullptr) continue;
      name = scope->name();
    }
    const Span span{annotation.began_ns + annotation.offset_ns, annotation.ended_ns + annotation.offset_ns};
    Activity& activity = make(ActivityType::GPU_USER_ANNOTATION, name, span);
    activity.device = key.second.first;
    activity.resource = static_cast<int32_t>(key.second.second);
    activity.id = static_cast<int32_t>(next_flow());
  }
}

libkineto::DeviceInfo ProfileRows::device_info(int device) {
  const std::string index = std::to_string(device);
  return {device, libkineto::kExceedMaxPid + device, device_name() + ":" + index,
          device_name_upper() + " " + index};
}

void ProfileRows::log(libkineto::ActivityLogger& logger, int64_t start_ns) {
  int last_device = 0;  // whose information the session returns
  for (const auto& [device, stream] : rows_) {
    if (device != last_device) logger.handleDeviceInfo(device_info(device), start_ns);
    last_device = device;
    const std::string name = stream == kAllStreams
                                 ? "all streams"
                                 : "stream " + std::to_string(stream) + (stream == 0 ? " (default)" : "");
    logger.handleResourceInfo({stream, stream, device, name}, start_ns);
  }
  for (const auto& activity : buffer_->activities) logger.handleActivity(*activity);
}

}  // namespace loom::glue
