// What the library of matrix products keeps of a device's memory, by PyTorch's rules for cuBLAS and cuBLASLt:
// each handle, of which a thread has one, takes a workspace on each stream at its first product there, and
// keeps it until it is cleared. The backward passes of a device have a handle of their own.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/op_record.h"
#include "runtime/runtime.h"

namespace loom::glue::workspaces {

enum class Library : uint8_t {
  kPlain,   // cuBLAS
  kLinear,  // cuBLASLt, for products with a bias and of narrow dtypes
};

// Of a device: bytes of a workspace of each library where the program says nothing. All 0: it has none.
struct Sizes {
  size_t bytes = 0, linear_bytes = 0;
};

// What the program's environment says; read once, at the first product.
struct Rules {
  std::optional<size_t> bytes, linear_bytes;
  bool is_shared = true;            // both libraries work in cuBLAS's workspace
  std::string not_understood = {};  // a variable that has a value which says no size
};
void set_rules(std::function<Rules()> ask);

// The devices of a world take workspaces from now on, each of its sizes …
void provide(runtime::Runtime& world, std::vector<Sizes> sizes);
// … and no longer: they are given back.
void end(runtime::Runtime& world);

// Gives back those of a world, or of one stream. The next products take new ones.
void clear(runtime::Runtime& world);
void clear(const runtime::Device& device, int64_t stream);

// What a new workspace has, on a device of those that the program sees.
size_t bytes_of(Library library, int device);
// Sets that for all devices; nothing: the rules decide again. Workspaces that are too small are replaced when
// they are next used.
void set_bytes(Library library, std::optional<size_t> bytes);

namespace detail {
extern std::atomic<bool> are_provided;
}

// Whether an op of the class may call the library. Costs a branch or two.
inline bool may_be_taken(runtime::ShapeClass shape_class) noexcept {
  using enum runtime::ShapeClass;
  return (shape_class == kMatmul || shape_class == kConvolution || shape_class == kLinearAlgebra ||
          shape_class == kAttention) &&
         detail::are_provided.load(std::memory_order_relaxed);
}

// A product is issued to a stream; `has_vector`: one of its operands has one dimension. Throws
// c10::OutOfMemoryError where the device has no room for a workspace.
void take(const runtime::Device& device, runtime::StreamRef stream, const runtime::OpRecord& op,
          bool has_vector);

// Memory that a library takes for the length of a call, and gives back. Where there is no room it does
// without.
void take_for_call(const runtime::Device& device, size_t bytes);

}  // namespace loom::glue::workspaces
