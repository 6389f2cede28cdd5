#include "torch/profiler/kineto.h"

#include <Python.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>

#include "runtime/clock.h"
#include "runtime/simulated_clock.h"
#include "torch/core/device.h"
#include "torch/core/kineto_headers.h"
#include "torch/profiler/profile_recorder.h"
#include "torch/profiler/profile_rows.h"
#include "torch/profiler/register.h"

namespace loom::glue {

namespace {

using libkineto::ActivityType;

std::atomic<unsigned long> profiles{0};

// The recorder of the profile that runs. Leaked, since profiles end with the process as well.
std::mutex& running_mutex = *new std::mutex;
std::weak_ptr<ProfileRecorder>& running_recorder = *new std::weak_ptr<ProfileRecorder>;

// What is to be added to the host's clock for nanoseconds since 1970: from the quickest of a few readings of
// both clocks.
int64_t host_offset_ns() {
  int64_t offset = 0, best_gap = std::numeric_limits<int64_t>::max();
  for (int i = 0; i < 5; ++i) {
    const int64_t before = runtime::clock::host_ns();
    const int64_t since_1970 = runtime::clock::host_wall_ns();
    const int64_t gap = runtime::clock::host_ns() - before;
    if (gap >= best_gap) continue;
    best_gap = gap;
    offset = since_1970 - before - gap / 2;
  }
  return offset;
}

// Waits for issued work. A failure stays with its stream, for the next thread that waits for that.
void drain_devices() {
  if (!runtime::is_initialized() || runtime::in_bad_fork()) return;
  struct WithoutPython {  // releasing what a command used may need Python's lock
    PyThreadState* const state =
        Py_IsInitialized() != 0 && PyGILState_Check() != 0 ? PyEval_SaveThread() : nullptr;
    ~WithoutPython() {
      if (state != nullptr) PyEval_RestoreThread(state);
    }
  } without_python;
  runtime::Runtime& runtime = devices();
  for (int device = 0; device < runtime.device_count(); ++device) {
    runtime::drain_device(device);
  }
}

class Session final : public libkineto::IActivityProfilerSession {
 public:
  explicit Session(std::set<ActivityType> types) : types_(std::move(types)) {}
  // A profile that was never stopped: the program gave up, or prepared another.
  ~Session() override { detach(); }

  void start() override {
    runtime::simulated::settle();
    host_offset_ns_ = host_offset_ns();
    runtime::tape::attach(recorder_);
    is_attached_ = true;
    const std::lock_guard<std::mutex> lock(running_mutex);
    running_recorder = recorder_;
    status_ = libkineto::TraceStatus::RECORDING;
  }

  void stop() override {
    detach();
    try {
      drain_devices();
    } catch (const std::exception& error) {
      errors_.emplace_back(error.what());
    }
    status_ = libkineto::TraceStatus::PROCESSING;
  }

  std::vector<std::string> errors() override { return errors_; }

  void processTrace(libkineto::ActivityLogger& logger) override {
    processTrace(logger, [](int32_t) { return nullptr; }, 0, 0);
  }

  void processTrace(libkineto::ActivityLogger& logger, libkineto::getLinkedActivityCallback find_op,
                    int64_t start_ns, int64_t /*end_ns*/) override {
    ProfileRows rows(host_offset_ns_, runtime::simulated::is_on(), types_, std::move(find_op));
    rows.add(recorder_->take());
    rows.log(logger, start_ns);
    buffer_ = rows.buffer();
    status_ = libkineto::TraceStatus::READY;
    // From errors on, as PyTorch has it: see cuda/builtin_backend.cpp.
    suppressLibkinetoLogMessages();
  }

  std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override {
    // Without an answer Kineto names 16 processes "GPU".
    return std::make_unique<libkineto::DeviceInfo>(ProfileRows::device_info(0));
  }
  std::vector<libkineto::ResourceInfo> getResourceInfos() override { return {}; }
  std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override { return std::move(buffer_); }

  void pushCorrelationId(uint64_t id) override { recorder_->push_op(id); }
  void popCorrelationId() override { recorder_->pop_op(); }
  void pushUserCorrelationId(uint64_t id) override { recorder_->push_scope(id); }
  void popUserCorrelationId() override { recorder_->pop_scope(); }

 private:
  void detach() {
    if (!std::exchange(is_attached_, false)) return;
    runtime::tape::detach(recorder_);
    const std::lock_guard<std::mutex> lock(running_mutex);
    if (running_recorder.lock() == recorder_) running_recorder.reset();
  }

  const std::set<ActivityType> types_;
  const std::shared_ptr<ProfileRecorder> recorder_ = std::make_shared<ProfileRecorder>();
  bool is_attached_ = false;
  int64_t host_offset_ns_ = 0;
  std::vector<std::string> errors_;
  std::unique_ptr<libkineto::CpuTraceBuffer> buffer_;
};

class Profiler final : public libkineto::IActivityProfiler {
 public:
  const std::string& name() const override { return name_; }
  const std::set<ActivityType>& availableActivities() const override { return types_; }

  std::unique_ptr<libkineto::IActivityProfilerSession> configure(const std::set<ActivityType>& types,
                                                                 const libkineto::Config&) override {
    ++profiles;
    // A profile of the host alone asks for calls of the device's runtime, too, but for none of these.
    const auto runs_on_device = [](ActivityType type) {
      return type == ActivityType::CONCURRENT_KERNEL || type == ActivityType::GPU_MEMCPY ||
             type == ActivityType::GPU_MEMSET || type == ActivityType::GPU_USER_ANNOTATION;
    };
    if (std::none_of(types.begin(), types.end(), runs_on_device)) return nullptr;
    return std::make_unique<Session>(types);
  }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(int64_t, int64_t,
                                                                 const std::set<ActivityType>& types,
                                                                 const libkineto::Config& config) override {
    return configure(types, config);
  }

 private:
  const std::string name_ = "torch-loom";
  const std::set<ActivityType> types_{ActivityType::CONCURRENT_KERNEL, ActivityType::GPU_MEMCPY,
                                      ActivityType::GPU_MEMSET, ActivityType::GPU_USER_ANNOTATION,
                                      runtime_activity()};
};

}  // namespace

void register_kineto_profiler() {
  register_profiler([] { return std::make_unique<Profiler>(); });
}

unsigned long num_profiles() noexcept { return profiles.load(std::memory_order_relaxed); }

void set_profile_open(bool is_open) {
  const std::lock_guard<std::mutex> lock(running_mutex);
  if (const auto recorder = running_recorder.lock()) recorder->set_open(is_open);
}

}  // namespace loom::glue
