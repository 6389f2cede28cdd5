// What inline PTX does with memory, and with matrices that a warp holds together: mma.sync, ldmatrix,
// cp.async. Lanes hold elements as the PTX ISA lays them out. Products are summed in float32 (whole numbers
// in int32), from the first to the last.
#pragma once

#include "loom_cuda/half_bits.h"
#include "loom_cuda/warp.h"

namespace loom_cuda::ptx {

template <typename T>
using Plain = std::remove_cv_t<std::remove_reference_t<T>>;

// The bits of a number, and a number of these bits.
template <typename T>
static inline unsigned bits(const T& value) {
  static_assert(sizeof(T) == 4, "a register of a matrix has 32 bits");
  unsigned result;
  memcpy(&result, &value, 4);
  return result;
}
template <typename T>
static inline void set(T& to, unsigned value) {
  static_assert(sizeof(T) == 4, "a register of a matrix has 32 bits");
  memcpy(&to, &value, 4);
}

// Addresses come as pointers and as numbers.
template <typename T, typename A>
static inline T* at(A address) {
  if constexpr (std::is_pointer_v<A>) {
    return reinterpret_cast<T*>(const_cast<char*>(reinterpret_cast<const volatile char*>(address)));
  } else {
    return reinterpret_cast<T*>(static_cast<size_t>(address));
  }
}
template <typename T, typename A>
static inline T* at_shared(A address) {
  return static_cast<T*>(of_shared(address));
}
// An address, so many bytes further on.
template <typename A>
static inline A behind(A address, long long bytes) {
  if constexpr (std::is_pointer_v<A>) {
    return reinterpret_cast<A>(reinterpret_cast<unsigned long long>(address) + bytes);
  } else {
    return static_cast<A>(address + bytes);
  }
}

template <typename T>
static inline T read(const T* at) {
  return *at;
}
template <typename T>
static inline void write(T* at, T value) {
  *at = value;
}
// What is there now, and not what was there before: other blocks may write it.
template <typename T>
static inline T read_now(const T* at) {
  loom_cuda_poll(runner);
  const T value = *const_cast<const volatile T*>(at);
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
  return value;
}
template <typename T>
static inline void write_now(T* at, T value) {
  __atomic_thread_fence(__ATOMIC_RELEASE);
  *const_cast<volatile T*>(at) = value;
}

// Elements of a register, the lowest first.
struct f16 {
  static constexpr int count = 2;
  static float get(unsigned bits, int i) {
    return float_of_half(static_cast<unsigned short>(bits >> 16 * i));
  }
};
struct bf16 {
  static constexpr int count = 2;
  static float get(unsigned bits, int i) {
    float value;
    set(value, i == 0 ? bits << 16 : bits & 0xFFFF0000U);
    return value;
  }
};
struct tf32 {
  static constexpr int count = 1;
  static float get(unsigned bits, int) {
    float value;
    set(value, bits & 0xFFFFE000U);  // what a tensor core reads
    return value;
  }
};
struct s8 {
  static constexpr int count = 4;
  static int get(unsigned bits, int i) { return static_cast<signed char>(bits >> 8 * i); }
};
struct u8 {
  static constexpr int count = 4;
  static int get(unsigned bits, int i) { return static_cast<unsigned char>(bits >> 8 * i); }
};
// Sums: of two registers a row each, or packed.
struct f32 {
  using Number = float;
  static constexpr int registers = 4;
  static float get(const unsigned* own, int i) {
    float value;
    set(value, own[i]);
    return value;
  }
  static void put(unsigned* own, int i, float value) { own[i] = bits(value); }
};
struct s32 {
  using Number = int;
  static constexpr int registers = 4;
  static int get(const unsigned* own, int i) { return static_cast<int>(own[i]); }
  static void put(unsigned* own, int i, int value) { own[i] = static_cast<unsigned>(value); }
};
struct packed_f16 {
  using Number = float;
  static constexpr int registers = 2;
  static float get(const unsigned* own, int i) { return f16::get(own[i / 2], i % 2); }
  static void put(unsigned* own, int i, float value) {
    const int shift = 16 * (i % 2);
    own[i / 2] = (own[i / 2] & ~(0xFFFFU << shift)) | static_cast<unsigned>(half_of_float(value)) << shift;
  }
};

// D = A B + C of 16 x k, k x 8 and 16 x 8. Lane 4 g + t has rows g and g + 8 of A and of the sums, column g
// of B, and of each row of a register's elements the t-th, from the t-th of each four registers' worth.
template <typename A, typename B, typename S, int k>
struct Product {
  unsigned a[16 * k / A::count / 32], b[8 * k / B::count / 32], sums[S::registers];

  static void multiply(void* const* given, unsigned) {
    const Unchecked own_memory;
    typename S::Number left[16][k], right[k][8];
    for (int lane = 0; lane < 32; ++lane) {
      const auto& own = *static_cast<const Product*>(given[lane]);
      const int group = lane / 4, turn = lane % 4;
      for (int r = 0; r < 16 * k / A::count / 32; ++r) {
        for (int i = 0; i < A::count; ++i)
          left[group + r % 2 * 8][(turn + r / 2 * 4) * A::count + i] = A::get(own.a[r], i);
      }
      for (int r = 0; r < 8 * k / B::count / 32; ++r) {
        for (int i = 0; i < B::count; ++i) right[(turn + r * 4) * B::count + i][group] = B::get(own.b[r], i);
      }
    }
    for (int lane = 0; lane < 32; ++lane) {
      auto& own = *static_cast<Product*>(given[lane]);
      for (int i = 0; i < 4; ++i) {
        const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
        auto sum = S::get(own.sums, i);
        for (int step = 0; step < k; ++step) sum += left[row][step] * right[step][column];
        S::put(own.sums, i, sum);
      }
    }
  }
};
template <typename A, typename B, typename S, int k>
static inline void multiply(Product<A, B, S, k>& own) {
  meet(0xffffffffU, own, &Product<A, B, S, k>::multiply);
}

// Lanes 8 i to 8 i + 7 name the rows of the i-th matrix of 8 x 8 elements of 16 bits.
template <int count, bool is_transposed>
struct Rows {
  unsigned short row[8];
  unsigned own[count];

  static void spread(void* const* given, unsigned) {
    const Unchecked own_memory;
    for (int lane = 0; lane < 32; ++lane) {
      auto& to = *static_cast<Rows*>(given[lane]);
      for (int matrix = 0; matrix < count; ++matrix) {
        unsigned both = 0;
        for (int i = 0; i < 2; ++i) {
          const int turn = lane % 4 * 2 + i, group = lane / 4;
          const auto& from = *static_cast<const Rows*>(given[8 * matrix + (is_transposed ? turn : group)]);
          both |= static_cast<unsigned>(from.row[is_transposed ? group : turn]) << 16 * i;
        }
        to.own[matrix] = both;
      }
    }
  }
};
template <int count, bool is_transposed>
static inline void load_matrices(Rows<count, is_transposed>& own, const void* row) {
  if (lane() < 8 * count) {
    for (int i = 0; i < 8; ++i) own.row[i] = static_cast<const unsigned short*>(row)[i];
  }
  meet(0xffffffffU, own, &Rows<count, is_transposed>::spread);
}

// The bytes behind `given` are zero.
static inline void copy(void* to, const char* from, unsigned bytes, unsigned given) {
  for (unsigned i = 0; i < bytes; i += 4) {
    unsigned word = 0;
    if (i + 4 <= given) {
      word = *reinterpret_cast<const unsigned*>(from + i);
    } else {
      for (unsigned k = i; k < given; ++k)
        word |= static_cast<unsigned>(static_cast<unsigned char>(from[k])) << 8 * (k - i);
    }
    static_cast<unsigned*>(to)[i / 4] = word;
  }
}
static inline void copy(void* to, const char* from, unsigned bytes) { copy(to, from, bytes, bytes); }

// Ten bits of fraction, halves away from zero.
static inline unsigned rounded_tf32(float value) {
  const unsigned own = bits(value);
  return (own & 0x7F800000U) == 0x7F800000U ? own : (own + 0x1000U) & 0xFFFFE000U;
}

}  // namespace loom_cuda::ptx
