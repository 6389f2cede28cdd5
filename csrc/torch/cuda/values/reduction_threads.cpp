#include "torch/cuda/values/reduction_threads.h"

#include <algorithm>
#include <bit>

namespace loom::glue {

namespace {

constexpr int64_t kWarp = 32, kMostThreads = 512;
constexpr int64_t kFewPerThread = 16, kManyPerThread = 256;
constexpr int64_t kLeastVectorized = 128;

int64_t last_power_of_2(int64_t number) {
  return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(number)));
}

// How many results a thread computes at once, which lie together.
int64_t results_together(const Shape& shape, int64_t first_element) {
  int64_t size = kUnroll;
  const auto fit = [&](int64_t number) {
    while (number % size != 0) size /= 2;
  };
  fit(first_element);
  fit(shape.kept[0].size);
  for (size_t i = 1; i < shape.kept.size(); ++i) fit(shape.kept[i].stride);
  for (const Dim& dim : shape.reduced) fit(dim.stride);
  return size;
}

}  // namespace

Shape shape_of(const at::Tensor& self, const std::vector<bool>& is_reduced) {
  Shape shape;
  for (int64_t dim = self.dim() - 1; dim >= 0; --dim) {
    const Dim own{self.size(dim), self.stride(dim)};
    if (own.size == 1) continue;
    if (is_reduced[static_cast<size_t>(dim)]) {
      shape.count *= own.size;
      shape.reduced.push_back(own);
      continue;
    }
    shape.results *= own.size;
    Dim* const last = shape.kept.empty() ? nullptr : &shape.kept.back();
    // Results lie one behind another: where operands do, too, two dimensions are one.
    if (last != nullptr && last->size * last->stride == own.stride) {
      last->size *= own.size;
    } else {
      shape.kept.push_back(own);
    }
  }
  // As TensorIterator sorts: a stride of 0 lies before or behind any other.
  for (size_t i = 1; i < shape.reduced.size(); ++i) {
    for (size_t later = i, at = i; at-- > 0;) {
      const int64_t first = shape.reduced[at].stride, second = shape.reduced[later].stride;
      if (first == 0 || second == 0) continue;
      if (first <= second) break;
      std::swap(shape.reduced[at], shape.reduced[later]);
      later = at;
    }
  }
  std::vector<Dim> joined;
  for (const Dim& dim : shape.reduced) {
    if (!joined.empty() && joined.back().size * joined.back().stride == dim.stride) {
      joined.back().size *= dim.size;
    } else {
      joined.push_back(dim);
    }
  }
  shape.reduced = std::move(joined);
  return shape;
}

Threads threads_of(const Shape& shape, int64_t first_element, int64_t vector,
                   const runtime::RandomGrid& grid) {
  Threads threads;
  threads.is_inner = shape.kept.empty() || shape.reduced[0].stride < shape.kept[0].stride;
  int64_t across = threads.is_inner ? shape.count : shape.results;
  const int64_t along = threads.is_inner ? shape.results : shape.count;
  int64_t together = 1;
  if (threads.is_inner) {
    if (shape.reduced[0].stride == 1 && shape.reduced.size() == 1 && across >= kLeastVectorized) {
      threads.vector = vector;
      across /= vector;
    }
  } else if (shape.kept[0].stride == 1) {
    together = results_together(shape, first_element);
    across /= together;
  }
  const int64_t most = kMostThreads / together;
  const int64_t wide = across < most ? last_power_of_2(across) : most;
  const int64_t high = along < most ? last_power_of_2(along) : most;
  threads.width = std::min(wide, kWarp);
  threads.height = std::min(high, most / threads.width);
  threads.width = std::min(wide, most / threads.height);
  int64_t results_apart = 1;
  if (threads.is_inner) {
    threads.lanes = threads.width;
  } else {
    results_apart *= threads.width;
  }
  const auto per_thread = [&] { return divided_up(shape.count, threads.all()); };
  const bool splits_rows = per_thread() >= threads.height * kFewPerThread || per_thread() >= kManyPerThread;
  if (splits_rows) {
    threads.rows = threads.height;
  } else {
    results_apart *= threads.height;
  }
  const int64_t resident =
      int64_t{grid.num_cores} * (grid.threads_per_core / (threads.width * threads.height));
  const int64_t blocks = divided_up(shape.results / together, results_apart);
  if (splits_rows && per_thread() >= kManyPerThread && blocks <= resident) {
    const int64_t filling = divided_up(resident, blocks),
                  most_blocks = divided_up(per_thread(), kFewPerThread);
    threads.blocks = std::max(std::min(filling, most_blocks), divided_up(per_thread(), kManyPerThread));
  }
  return threads;
}

}  // namespace loom::glue
