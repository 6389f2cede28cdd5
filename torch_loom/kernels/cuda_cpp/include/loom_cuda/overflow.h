// What -fsanitize=signed-integer-overflow calls: a sum, difference or product of ints that no int holds.
#pragma once

namespace loom_cuda {

// How GCC describes the operation: its place and its type (libsanitizer/ubsan/ubsan_value.h).
struct OverflowPlace {
  CheckedPlace at;
  const struct {
    uint16_t kind,
        info;  // kind 0: whole numbers; info: the lowest bit says signed, the others log2 of the bits
  }* type;
};

// Hashes and random numbers overflow as well, by numbers that no offset has.
static inline bool may_be_offset(int a, int b, long long value, char sign) {
  constexpr long long kMostBytes = 1LL << 40;
  const auto is_of_hash = [](int one) { return one % 2 != 0 && (one > 1 << 24 || one < -(1 << 24)); };
  return value < kMostBytes && value > -kMostBytes && !(sign == '*' && (is_of_hash(a) || is_of_hash(b)));
}

static inline void note_overflow(const void* data, uintptr_t left, uintptr_t right, char sign) {
  const auto& place = *static_cast<const OverflowPlace*>(data);
  constexpr uint16_t kSigned32 = 5 << 1 | 1;
  if (!loom_cuda_in_kernel() || place.type->kind != 0 || place.type->info != kSigned32) return;
  if (strstr(place.at.file, "/kernels/cuda_cpp/include/") != nullptr) return;
  const int a = static_cast<int>(left), b = static_cast<int>(right);
  const long long wide = b;
  const long long value = sign == '*' ? a * wide : sign == '+' ? a + wide : a - wide;
  if (!may_be_offset(a, b, value, sign)) return;
  char text[192];
  snprintf(
      text, sizeof(text),
      "%d %c %d is %lld, which no int holds (compute it in 64 bits, or in unsigned if it is to wrap around),",
      a, sign, b, value);
  fail_at(719, text, data);
}

}  // namespace loom_cuda

LOOM_CUDA_HANDLER(add_overflow)(void* data, uintptr_t left, uintptr_t right) {
  loom_cuda::note_overflow(data, left, right, '+');
}
LOOM_CUDA_HANDLER(sub_overflow)(void* data, uintptr_t left, uintptr_t right) {
  loom_cuda::note_overflow(data, left, right, '-');
}
LOOM_CUDA_HANDLER(mul_overflow)(void* data, uintptr_t left, uintptr_t right) {
  loom_cuda::note_overflow(data, left, right, '*');
}
LOOM_CUDA_HANDLER(negate_overflow)(void*, uintptr_t) {}  // of the smallest number, which is itself
