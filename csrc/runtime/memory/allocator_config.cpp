#include "runtime/memory/allocator_config.h"

#include <algorithm>
#include <bit>
#include <cstdio>

namespace loom::runtime {

void AllocatorConfig::update() {
  rounds_to_power2_ = std::any_of(roundup_power2_divisions.begin(), roundup_power2_divisions.end(),
                                  [](size_t divisions) { return divisions > 1; });
}

size_t AllocatorConfig::block_bytes_by_power2(size_t bytes) const {
  const int log2 = std::bit_width(bytes) - 1;
  const int index = std::clamp(log2 - 20, 0, static_cast<int>(roundup_power2_divisions.size()) - 1);
  const size_t divisions = roundup_power2_divisions[static_cast<size_t>(index)];
  if (divisions <= 1 || bytes <= kMinBlockBytes * divisions) return round_up(bytes, kMinBlockBytes);
  const size_t power = size_t{1} << log2;
  if (bytes == power) return bytes;
  const size_t step = power >> (std::bit_width(divisions) - 1);
  return step == 0 ? power << 1 : round_up(bytes, step);
}

std::string format_bytes(int64_t bytes) {
  const char* unit[] = {"bytes", "KiB", "MiB", "GiB"};
  double value = static_cast<double>(bytes);
  size_t index = 0;
  while (index < 3 && value >= 1024.0) {
    value /= 1024.0;
    ++index;
  }
  char text[64];
  std::snprintf(text, sizeof text, index == 0 ? "%.0f %s" : "%.2f %s", value, unit[index]);
  return text;
}

}  // namespace loom::runtime
