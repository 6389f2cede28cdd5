// The key of a call, and the table that it finds values in while other threads write to it.
#include <array>
#include <atomic>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "check.h"
#include "util/call_key.h"
#include "util/checked_slot.h"

namespace {

using loom::CallKey;
using loom::CheckedSlot;
using loom::KeyMixer;

CallKey key_of(const std::vector<std::pair<uint64_t, uint64_t>>& words) {
  KeyMixer mixer;
  for (const auto& [one, other] : words) mixer.add(one, other);
  return mixer.key();
}

}  // namespace

TEST(keys_tell_words_places_and_counts_apart) {
  const CallKey some = key_of({{1, 2}, {3, 4}});
  CHECK(some == key_of({{1, 2}, {3, 4}}));
  for (const CallKey& other :
       {key_of({{3, 4}, {1, 2}}), key_of({{2, 1}, {3, 4}}), key_of({{1, 2}, {3, 4}, {0, 0}}),
        key_of({{1, 2}}), key_of({{1, 2}, {3, 5}}), key_of({})}) {
    CHECK(!(some == other));
  }
}

TEST(keys_of_sizes_and_strides_are_all_different) {
  std::set<std::pair<uint64_t, uint64_t>> seen;
  std::set<uint64_t> places;
  size_t count = 0;
  for (uint64_t rows = 0; rows < 300; ++rows) {
    for (uint64_t columns = 0; columns < 300; ++columns, ++count) {
      const CallKey key = key_of({{rows, columns}, {columns, 1}});
      seen.emplace(key.first, key.second);
      places.insert(key.first % 4096);
    }
  }
  CHECK(seen.size() == count);
  CHECK(places.size() == 4096);  // of a table
}

// A reader finds the value of its key, or none, and never another's nor parts of two: four words are written
// one by one.
TEST(slots_give_no_key_the_value_of_another) {
  CheckedSlot slot;
  CHECK(slot.is_empty());
  std::array<CallKey, 64> keys;
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = key_of({{i, 7}});
  std::atomic<bool> is_done{false}, is_wrong{false};
  std::vector<std::thread> threads;
  for (size_t number = 0; number < 2; ++number) {
    threads.emplace_back([&, number] {
      for (size_t i = 0; i < 400'000; ++i) {
        const size_t place = (i * 2 + number) % keys.size();
        slot.put(keys[place], {place, i << 32 | i});
      }
    });
    threads.emplace_back([&] {
      while (!is_done.load()) {
        for (size_t i = 0; i < keys.size(); ++i) {
          const std::optional<CheckedSlot::Value> found = slot.find(keys[i]);
          if (found.has_value() && (found->one != i || found->other >> 32 != (found->other & 0xffffffff)))
            is_wrong.store(true);
        }
      }
    });
  }
  threads[0].join();
  threads[2].join();
  is_done.store(true);
  threads[1].join();
  threads[3].join();
  CHECK(!is_wrong.load());
  CHECK(!slot.is_empty());
}
