#include "torch/memory/alloc_conf.h"

#include <c10/core/AllocatorConfig.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <unordered_set>
#include <utility>
#include <vector>

#include "torch/core/device.h"
#include "torch/memory/register.h"

namespace loom::glue {

namespace {

using c10::CachingAllocator::AcceleratorAllocatorConfig;

enum class Values { kBackend, kFlag, kThreads, kMegabytes };

// Keys that CUDA's allocator knows and that mean nothing here: one environment serves both. Their values are
// checked as there.
const std::map<std::string, Values>& keys_of_cuda() {
  static const std::map<std::string, Values> keys{{"backend", Values::kBackend},
                                                  {"graph_capture_record_stream_reuse", Values::kFlag},
                                                  {"pinned_num_register_threads", Values::kThreads},
                                                  {"pinned_reserve_segment_size_mb", Values::kMegabytes},
                                                  {"pinned_use_cuda_host_register", Values::kFlag},
                                                  {"pinned_use_hip_host_register", Values::kFlag},
                                                  {"release_lock_on_cudamalloc", Values::kFlag},
                                                  {"release_lock_on_hipmalloc", Values::kFlag},
                                                  {"throw_on_cudamalloc_oom", Values::kFlag}};
  return keys;
}

// A key that PyTorch's own parser leaves to the backend.
const char* const kMemoryFraction = "per_process_memory_fraction";

constexpr const char* kVariables[] = {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF",
                                      "PYTORCH_HIP_ALLOC_CONF"};

// The first of them that is set, by which messages name the settings.
std::string variable() {
  for (const char* const name : kVariables) {
    if (std::getenv(name) != nullptr) return name;
  }
  return kVariables[0];
}

std::string environment() {
  const char* const value = std::getenv(variable().c_str());
  return value == nullptr ? "" : value;
}

struct Setting {
  std::string key, value;  // a list keeps its brackets
};

[[noreturn]] void refuse(const Setting& setting, const std::string& allowed) {
  C10_THROW_ERROR(ValueError,
                  variable() + ": " + setting.key + " must be " + allowed + ", got '" + setting.value + "'");
}

std::vector<Setting> split(const std::string& text) {
  std::vector<Setting> settings;
  std::string current;
  bool in_list = false;
  const auto finish = [&] {
    if (current.empty()) return;
    const size_t colon = current.find(':');
    if (colon == std::string::npos || colon == 0 || colon + 1 == current.size()) {
      C10_THROW_ERROR(ValueError, variable() + " must be 'key:value,key:value', got '" + current + "'");
    }
    settings.push_back({current.substr(0, colon), current.substr(colon + 1)});
    current.clear();
  };
  for (const char letter : text) {
    if (std::isspace(static_cast<unsigned char>(letter)) != 0) continue;
    if (letter == ',' && !in_list) {
      finish();
      continue;
    }
    if (letter == '[') in_list = true;
    if (letter == ']') in_list = false;
    current += letter;
  }
  finish();
  return settings;
}

std::optional<size_t> to_size(const std::string& text) {
  size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> to_number(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || *end != '\0') return std::nullopt;
  return value;
}

bool is_power_of_2(size_t value) { return value != 0 && (value & (value - 1)) == 0; }

void check_megabytes(const Setting& setting, size_t least) {
  constexpr size_t kMost = size_t{1} << 40;
  const std::optional<size_t> value = to_size(setting.value);
  if (!value || *value < least || *value > kMost) {
    refuse(setting, "a whole number of MiB, at least " + std::to_string(least));
  }
}

void check_divisions(const Setting& setting) {
  const std::string allowed =
      "a power of two, or a list like [256:1,512:2,1024:4,>:8] of sizes in MiB (powers of two) with powers "
      "of "
      "two, 0 for none";
  const auto is_division = [](const std::string& text) {
    const std::optional<size_t> value = to_size(text);
    return value && (*value == 0 || is_power_of_2(*value));
  };
  const std::string& text = setting.value;
  if (text.front() != '[') {
    if (!is_division(text) || text == "0") refuse(setting, allowed);
    return;
  }
  if (text.back() != ']') refuse(setting, allowed);
  std::string pair;
  for (const char letter : text.substr(1)) {
    if (letter != ',' && letter != ']') {
      pair += letter;
      continue;
    }
    const size_t colon = pair.find(':');
    if (colon == std::string::npos) refuse(setting, allowed);
    const std::string size = pair.substr(0, colon);
    const bool is_size = size == ">" || is_power_of_2(to_size(size).value_or(0));
    if (!is_size || !is_division(pair.substr(colon + 1))) refuse(setting, allowed);
    pair.clear();
  }
}

void check_flag(const Setting& setting) {
  if (setting.value != "True" && setting.value != "False") refuse(setting, "True or False");
}

void check_foreign(const Setting& setting, Values values) {
  constexpr size_t kMostThreads = 128;
  switch (values) {
    case Values::kBackend:
      if (setting.value != "native" && setting.value != "cudaMallocAsync") {
        refuse(setting, "native or cudaMallocAsync");
      }
      return;
    case Values::kFlag:
      return check_flag(setting);
    case Values::kThreads: {
      const size_t threads = to_size(setting.value).value_or(0);
      if (!is_power_of_2(threads) || threads > kMostThreads) refuse(setting, "a power of two from 1 to 128");
      return;
    }
    case Values::kMegabytes:
      return check_megabytes(setting, 0);
  }
}

void check(const Setting& setting) {
  if (setting.key == "max_split_size_mb") {
    check_megabytes(setting, 20);
  } else if (setting.key == "max_non_split_rounding_mb" || setting.key == "large_segment_size_mb") {
    check_megabytes(setting, 20);
  } else if (setting.key == "roundup_power2_divisions") {
    check_divisions(setting);
  } else if (setting.key == "garbage_collection_threshold") {
    const std::optional<double> value = to_number(setting.value);
    if (!value || !(*value > 0.0 && *value < 1.0)) refuse(setting, "a number between 0 and 1, both excluded");
  } else if (setting.key == kMemoryFraction) {
    const std::optional<double> value = to_number(setting.value);
    if (!value || !(*value >= 0.0 && *value <= 1.0)) refuse(setting, "a number from 0 to 1");
  } else if (setting.key == "expandable_segments") {
    check_flag(setting);
  } else if (const auto foreign = keys_of_cuda().find(setting.key); foreign != keys_of_cuda().end()) {
    check_foreign(setting, foreign->second);
  } else if (const auto& keys = AcceleratorAllocatorConfig::getKeys(); keys.count(setting.key) == 0) {
    const std::set<std::string> sorted(keys.begin(), keys.end());
    std::string known;
    for (const std::string& key : sorted) {
      if (keys_of_cuda().count(key) == 0) known += (known.empty() ? "" : ", ") + key;
    }
    C10_THROW_ERROR(ValueError,
                    variable() + ": there is no key '" + setting.key + "'; the keys are " + known);
  }
}

std::optional<double> memory_fraction_in(const std::string& text) {
  std::optional<double> fraction;
  for (const Setting& setting : split(text)) {
    if (setting.key == kMemoryFraction) fraction = to_number(setting.value);
  }
  return fraction;
}

// What was asked for, and not handed to the devices yet: once it is, only the next setting or
// set_per_process_memory_fraction() changes it.
std::optional<double>& new_memory_fraction() {
  static std::optional<double> fraction = memory_fraction_in(environment());
  return fraction;
}

}  // namespace

void register_alloc_conf() {
  // Called by PyTorch after its own parser, whose values are in force already. With a hook, PyTorch refuses
  // keys that neither it nor the hook knows, and keys that it knows already.
  std::unordered_set<std::string> foreign_keys{kMemoryFraction};
  for (const auto& [key, values] : keys_of_cuda()) foreign_keys.insert(key);
  for (const std::string& key : AcceleratorAllocatorConfig::getKeys()) foreign_keys.erase(key);
  const std::function<void(const std::string&)> previous = AcceleratorAllocatorConfig::getConfigParserHook();
  AcceleratorAllocatorConfig::registerDeviceConfigParserHook(
      [previous](const std::string& text) {
        if (previous) previous(text);
        check_alloc_conf(text);
        if (const std::optional<double> fraction = memory_fraction_in(text)) new_memory_fraction() = fraction;
        if (runtime::is_initialized() && !runtime::in_bad_fork()) apply_alloc_conf();
      },
      foreign_keys);
}

void check_alloc_conf(const std::string& text) {
  for (const Setting& setting : split(text)) check(setting);
}

runtime::AllocatorConfig current_alloc_conf() {
  // PyTorch parses the environment at first use, with messages that name nothing.
  check_alloc_conf(environment());
  runtime::AllocatorConfig config;
  config.max_split_bytes = AcceleratorAllocatorConfig::max_split_size();
  config.max_non_split_rounding_bytes = AcceleratorAllocatorConfig::max_non_split_rounding_size();
  config.large_segment_bytes = AcceleratorAllocatorConfig::large_segment_size();
  const std::vector<size_t>& divisions = AcceleratorAllocatorConfig::roundup_power2_divisions();
  std::copy_n(divisions.begin(), std::min(divisions.size(), config.roundup_power2_divisions.size()),
              config.roundup_power2_divisions.begin());
  config.garbage_collection_threshold = AcceleratorAllocatorConfig::garbage_collection_threshold();
  config.expandable_segments = AcceleratorAllocatorConfig::use_expandable_segments();
  return config;
}

void apply_alloc_conf() {
  const runtime::AllocatorConfig config = current_alloc_conf();
  const std::optional<double> fraction = std::exchange(new_memory_fraction(), std::nullopt);
  for (int device = 0; device < devices().device_count(); ++device) {
    runtime::CachingAllocator& allocator = *devices().device(device).allocator;
    allocator.configure(config);
    if (fraction) allocator.set_memory_fraction(*fraction);
  }
}

}  // namespace loom::glue
