// Random numbers of the device: a Philox generator whose state is CUDA's 16 bytes (seed, offset).
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>

#include <memory>
#include <optional>

namespace loom::glue {

// Where the random numbers of a graph's ops start: written by each replay before its ops run.
struct CapturedRandom {
  uint64_t seed = 0, offset = 0;
};

// While the current stream of its device is captured, seed and offset cannot be changed: replays take them
// from the generator as it is then.
class LoomGenerator final : public c10::GeneratorImpl {
 public:
  explicit LoomGenerator(c10::DeviceIndex device);

  void set_current_seed(uint64_t seed) override;
  void set_offset(uint64_t offset) override;
  uint64_t get_offset() const override { return offset_; }
  uint64_t current_seed() const override { return seed_; }
  uint64_t seed() override;
  // Moves the offset on by `steps`; returns where it was, with the seed.
  CapturedRandom take(uint64_t steps);
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;

 private:
  LoomGenerator* clone_impl() const override;
  bool is_captured() const;

  uint64_t seed_ = c10::default_rng_seed_val;
  uint64_t offset_ = 0;  // a multiple of 4, as CUDA demands
};

const at::Generator& default_generator(int device);

// How far the offset moves with each op that draws numbers.
constexpr uint64_t kOffsetStep = 4;

// The generator of an op: `generator`, or the device's default one if it is undefined. Throws when it is
// another device's.
const at::Generator& generator_of(const std::optional<at::Generator>& generator, int device,
                                  const char* op_name);

}  // namespace loom::glue
