// An op that runs later: on a worker, or at each replay of a graph. Its outputs are made now, from what
// earlier calls with such arguments returned.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "torch/engine/generator.h"
#include "torch/inference/inferred_outputs.h"

namespace loom::glue {

// Queues `op` on the current stream of the lending's device. The arguments at the end of `stack` are lent
// already; its results take their place. The caller knows that `inferred` is what such arguments lead to.
// `draw`: of the generator among the arguments.
void queue_op(const Op& op, torch::jit::Stack* stack, Lending& lending,
              std::shared_ptr<const InferredOutputs> inferred, CapturedDraw draw);

// What queued ops need of the thread that runs them: a scope for all ops of a graph costs less than a scope
// each. An op that finds none in its thread makes its own.
class QueuedOpScope {
 public:
  // `keeps_threads`: the number of intra-op threads stays what the last op wanted.
  explicit QueuedOpScope(bool keeps_threads);
  ~QueuedOpScope();
  QueuedOpScope(const QueuedOpScope&) = delete;
  QueuedOpScope& operator=(const QueuedOpScope&) = delete;

  static QueuedOpScope* current() { return current_; }
  // The number of intra-op threads decides how sums are split, hence their last bits: an op uses its
  // issuer's.
  void use_threads(int wanted) {
    if (wanted != num_threads_) set_threads(wanted);
  }
  // Some kernels keep what a gradient needs only where its issuer wants gradients. None is recorded.
  void use_gradients(bool wanted) { c10::GradMode::set_enabled(wanted); }

 private:
  void set_threads(int wanted);

  static thread_local QueuedOpScope* current_;
  QueuedOpScope* const outer_;
  const bool keeps_threads_;
  const int threads_before_;
  int num_threads_;
  const EngineScope scope_;
  const c10::AutoGradMode gradients_;  // the thread's own, restored at the end
};

}  // namespace loom::glue
