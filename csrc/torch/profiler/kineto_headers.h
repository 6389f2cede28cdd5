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
