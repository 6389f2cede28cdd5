// Random numbers of the device: a Philox generator whose state is CUDA's 16 bytes (seed, offset).
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>

namespace loom::glue {

class LoomGenerator final : public c10::GeneratorImpl {
 public:
  explicit LoomGenerator(c10::DeviceIndex device);

  void set_current_seed(uint64_t seed) override;
  void set_offset(uint64_t offset) override;
  uint64_t get_offset() const override { return offset_; }
  uint64_t current_seed() const override { return seed_; }
  uint64_t seed() override;
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;

 private:
  LoomGenerator* clone_impl() const override;

  uint64_t seed_ = c10::default_rng_seed_val;
  uint64_t offset_ = 0;  // a multiple of 4, as CUDA demands
};

const at::Generator& default_generator(int device);

// A temporary generator of the engine, filled from Philox(seed, offset) of `generator` (the device's default
// one if it is undefined), whose offset then moves on. Each offset is a stream of numbers of its own, and all
// 64 seed bits count; the CPU's own generator is never touched. `is_kept`: it is used after this call of the
// op, else until this thread's next call.
at::Generator engine_generator(const std::optional<at::Generator>& generator, int device, const char* op_name,
                               bool is_kept);

}  // namespace loom::glue
