// Kineto's headers and PyTorch's for it, with what they expect to be defined.
#pragma once

// PyTorch's wheel has the headers of fmt, but does not export its functions.
#define FMT_HEADER_ONLY
// Without it PyTorch's headers leave out what a profiler registers with.
#define USE_KINETO

#include <IActivityProfiler.h>
#include <ThreadUtil.h>
#include <libkineto.h>
#include <output_base.h>
#include <torch/csrc/profiler/standalone/privateuse1_profiler.h>

#include <set>
#include <utility>

#include "torch/core/device_type.h"

namespace loom::glue {

// The rows of calls into the device's runtime.
inline libkineto::ActivityType runtime_activity() {
  return device_type() == c10::DeviceType::PrivateUse1 ? libkineto::ActivityType::PRIVATEUSE1_RUNTIME
                                                       : libkineto::ActivityType::CUDA_RUNTIME;
}

// Whether these are rows of calls into a device's runtime. A profile of the device alone asks for those of
// PrivateUse1, whatever the device is called.
inline bool has_runtime_activity(const std::set<libkineto::ActivityType>& types) {
  return types.count(runtime_activity()) != 0 ||
         types.count(libkineto::ActivityType::PRIVATEUSE1_RUNTIME) != 0;
}

// Kineto asks whatever is registered here, whichever the device type.
inline void register_profiler(torch::profiler::impl::PrivateUse1ProfilerFactory factory) {
  torch::profiler::impl::PrivateUse1ProfilerRegistry::instance().registerFactory(std::move(factory));
}

}  // namespace loom::glue
