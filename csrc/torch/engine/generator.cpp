#include "torch/engine/generator.h"

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>

#include "random/philox.h"

namespace loom::glue {

namespace {

// The words of a Mersenne Twister, drawn from Philox: it starts somewhere in its sequence that seed and
// offset decide.
at::mt19937 engine_at(uint64_t seed, uint64_t offset) {
  at::mt19937_data_pod data{};
  data.seed_ = seed;
  data.left_ = 1;  // the next draw first mixes the state
  data.seeded_ = true;
  data.next_ = 0;
  for (size_t i = 0; i < at::MERSENNE_STATE_N; i += 4) {
    const auto words = random::philox(seed, i / 4, offset);
    std::copy(words.begin(), words.end(), data.state_.begin() + static_cast<long>(i));
  }
  at::mt19937 engine;
  engine.set_data(data);
  return engine;
}
static_assert(at::MERSENNE_STATE_N % 4 == 0);

// Also gives its offset to kernels that draw from Philox themselves.
class EngineGenerator final : public at::CPUGeneratorImpl {
 public:
  void set_offset(uint64_t offset) override { offset_ = offset; }
  uint64_t get_offset() const override { return offset_; }
  uint64_t current_seed() const override {
    return cuda.has_value() ? cuda->seed : CPUGeneratorImpl::current_seed();
  }

  std::optional<CudaDraw> cuda;

 private:
  uint64_t offset_ = 0;
};

void fill(const at::Generator& engine, uint64_t seed, uint64_t offset, const runtime::RandomGrid* grid) {
  auto* impl = static_cast<EngineGenerator*>(engine.unsafeGetGeneratorImpl());
  impl->set_offset(offset);
  impl->cuda.reset();
  if (grid != nullptr) {
    // The kernel draws from Philox itself: it needs no Mersenne Twister.
    impl->cuda = CudaDraw{seed, offset, *grid};
    return;
  }
  impl->set_engine(engine_at(seed, offset));
  impl->set_next_float_normal_sample(std::nullopt);
  impl->set_next_double_normal_sample(std::nullopt);
}

}  // namespace

void CapturedDraw::refill() const { fill(engine, random->seed, random->offset + offset, grid); }

at::Generator engine_generator(const at::Generator& source, bool is_kept, uint64_t step,
                               const runtime::RandomGrid* grid) {
  const auto* impl = static_cast<const LoomGenerator*>(source.unsafeGetGeneratorImpl());
  const CapturedRandom start = take(*impl->state(), step);
  thread_local const at::Generator own = at::make_generator<EngineGenerator>();
  at::Generator engine = is_kept ? at::make_generator<EngineGenerator>() : own;
  fill(engine, start.seed, start.offset, grid);
  return engine;
}

const CudaDraw* cuda_draw_of(const at::Generator& engine) {
  const auto* impl = dynamic_cast<const EngineGenerator*>(engine.unsafeGetGeneratorImpl());
  return impl != nullptr && impl->cuda.has_value() ? &*impl->cuda : nullptr;
}

at::Generator new_engine_generator() { return at::make_generator<EngineGenerator>(); }

}  // namespace loom::glue
