// 128 bits that stand for all that was mixed into them. Words are multiplied into both halves, so that keys
// behave as random numbers: among n different calls two have the same key with a chance of about n² / 2^129,
// for a million calls 2^-89. (A product that is 0 forgets one half, about once in 2^63 words.) No caller
// compares more.
#pragma once

#include <bit>
#include <cstdint>

namespace loom {

struct CallKey {
  uint64_t first = 0, second = 0;
  bool operator==(const CallKey& other) const = default;
};

class KeyMixer {
 public:
  // Two words for one multiplication, whose 128 bits are the next state.
  void add(uint64_t each, uint64_t other = 0) noexcept {
    const auto wide = static_cast<unsigned __int128>(first_ ^ each) * (second_ ^ other);
    first_ = static_cast<uint64_t>(wide) ^ 0x9e3779b97f4a7c15u;
    second_ = static_cast<uint64_t>(wide >> 64) + std::rotl(each, 17) + 0xd6e8feb86659fd93u;
  }
  // Of what was added so far, and of two words more.
  CallKey key(uint64_t one = 0, uint64_t other = 0) const noexcept {
    KeyMixer last = *this;
    last.add(one, other);
    return {last.first_ ^ last.first_ >> 29, last.second_ ^ last.second_ >> 31};
  }

 private:
  uint64_t first_ = 0x2545f4914f6cdd1du, second_ = 0x9fb21c651e98df25u;
};

}  // namespace loom
