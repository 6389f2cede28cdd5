// Ctrl-C while a kernel of the program's own runs that does not end: nothing can stop such a kernel, so the
// program ends.
#pragma once

namespace loom::glue {

// Exists while a kernel runs in this thread. The first one of the process has SIGINT looked at: where it
// comes while kernels run, and for three seconds none of them ends, the process ends by it. Handlers of the
// program are called as before.
class RunningKernel {
 public:
  RunningKernel();
  ~RunningKernel();
  RunningKernel(const RunningKernel&) = delete;
  RunningKernel& operator=(const RunningKernel&) = delete;
};

}  // namespace loom::glue
