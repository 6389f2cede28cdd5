// What an op will return, before it runs: from its shape function, PyTorch's in C++ where there is one, in
// Python where there is no other. Where there is none, or the op table says that it is wrong, from what
// earlier runs of such calls showed, or from a rehearsal: the engine's kernel on zeros, in this thread.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "torch/inference/inferred_outputs.h"

namespace loom::glue {

// The key of what a call returns with the lent arguments at the end of `stack`; none when that cannot be
// known before it runs.
using InferenceKey = std::optional<CallKey>;
InferenceKey key_of(const Op& op, const torch::jit::Stack& stack, const Lending& lending);

// Null when neither earlier runs nor a shape function answer; `reason` is what the latter says instead. May
// run Python. What is not an `Exception` of Python's (Ctrl-C) leaves it, and so does a lack
// of memory. Of a call that is captured, whose shape function raised, the engine's kernel is tried on zeros:
// its error is the program's, and is raised.
std::shared_ptr<const InferredOutputs> find_or_infer(Op& op, const torch::jit::Stack& stack,
                                                     const Lending& lending, const CallKey& key,
                                                     bool is_captured, std::string& reason);

// Whether runs in place show what such calls return, for when they are queued or captured: the shape function
// does not say it, or has failed before. Skipped otherwise: it doubles the price of the first
// call of a shape.
bool must_teach(Op& op);
// The key of such a run; none where nothing is to be learned of it.
InferenceKey key_to_teach(Op& op, const torch::jit::Stack& stack, const Lending& lending);
// After it: `stack` ends with the engine's results, before they are adopted.
void teach(const Op& op, const CallKey& key, const torch::jit::Stack& stack, const Lending& lending);

// Whether the arguments at the end of `stack` have a mask among their lists of indices.
bool has_mask(const Op& op, const torch::jit::Stack& stack);

// How often the outputs of a call were looked for: calls that were known, and where the answer came from
// otherwise; `engine`: a rehearsal. `unknown`: such a call waits for its stream and runs in place.
struct InferenceCounts {
  int64_t known, cpp, python, engine, unknown;
};
InferenceCounts inference_counts();

// While on, each run in place that shows what a call returns is compared with what the shape function says.
void check_inference(bool is_on);
struct InferenceCheck {
  std::string op;
  std::string finding;  // "agrees", "strides", "sizes", … or "no answer"
  int64_t count;
  std::string example;  // of the first
};
// What was found, op by op.
std::vector<InferenceCheck> inference_checks();

}  // namespace loom::glue
