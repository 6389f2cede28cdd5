// Random numbers of the device: a Philox generator whose state is CUDA's 16 bytes (seed, offset).
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>

#include <memory>
#include <mutex>
#include <optional>

namespace loom::glue {

// Where the random numbers of a graph's ops start: written by each replay before its ops run.
struct CapturedRandom {
  uint64_t seed = 0, offset = 0;
};

// A seed and an offset. Generators may share them: graphsafe_get_state() makes another that does.
struct RandomState {
  uint64_t seed = c10::default_rng_seed_val;
  uint64_t offset = 0;  // a multiple of 4, as CUDA demands
  std::mutex mutex;     // held while drawing; programs hold the generator's
  // What graphs that draw from it share: device memory, as long as one of them lives.
  std::weak_ptr<void> graph_memory;
};

// The graph that a stream's capture makes, as far as random numbers go. It owns the capture.
class GraphRandom {
 public:
  virtual ~GraphRandom() = default;
  // How far the ops captured so far have moved the offset of a state; null: it is not registered.
  virtual uint64_t* offset_of(const RandomState& state) = 0;
};

// While the current stream of its device is captured, the offset is that within the graph: replays begin
// where the state is then. The seed cannot be changed.
class LoomGenerator final : public c10::GeneratorImpl {
 public:
  explicit LoomGenerator(c10::DeviceIndex device);

  void set_current_seed(uint64_t seed) override;
  void set_offset(uint64_t offset) override;
  uint64_t get_offset() const override;
  uint64_t current_seed() const override { return state_->seed; }
  uint64_t seed() override;
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;
  // The state itself, and not its values: a capture takes it as it is when a graph is replayed.
  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& state) override;
  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override;

  const std::shared_ptr<RandomState>& state() const noexcept { return state_; }

 private:
  LoomGenerator* clone_impl() const override;
  GraphRandom* captured() const;

  std::shared_ptr<RandomState> state_ = std::make_shared<RandomState>();
};

// Moves the offset on; returns where it was, with the seed.
CapturedRandom take(RandomState& state, uint64_t offset);

const at::Generator& default_generator(int device);

// How far the offset moves with each op that draws numbers.
constexpr uint64_t kOffsetStep = 4;

// The generator of an op: `generator`, or the device's default one if it is undefined. Throws when it is
// another device's.
const at::Generator& generator_of(const std::optional<at::Generator>& generator, int device,
                                  const char* op_name);

}  // namespace loom::glue
