// Orders drawn from a seed.
#include <algorithm>
#include <set>
#include <string>

#include "check.h"

namespace loom::test {

using driver::Event;
using driver::Launch;
using driver::Stream;

namespace {

// The order in which the commands of three streams ran, with some waits between them.
std::string order(uint64_t seed) {
  Chip chip(Launch::kChaos, seed);
  const Stream streams[] = {chip.inline_stream(), chip.side_stream(), chip.side_stream()};
  std::string ran;
  for (int round = 0; round < 30; ++round) {
    for (int i = 0; i < 3; ++i) {
      chip.submit(streams[i], [&ran, i] { ran += static_cast<char>('a' + i); });
    }
    if (round % 7 == 0) chip->wait_event(streams[0], chip.recorded(streams[1 + round % 2]));
    if (round == 15) chip->synchronize_stream(streams[2]);
  }
  for (const Stream stream : streams) chip->synchronize_stream(stream);
  return ran;
}

// What main reads of what a side stream writes, with or without the wait between them.
int read_of_side(uint64_t seed, bool waits) {
  Chip chip(Launch::kChaos, seed);
  const Stream main = chip.inline_stream(), side = chip.side_stream();
  auto* const memory = static_cast<unsigned char*>(chip->allocate(0, 8));
  unsigned char result = 0;
  chip->fill(main, memory, 1, 8);
  chip->wait_event(side, chip.recorded(main));
  chip->fill(side, memory, 2, 8);
  if (waits) chip->wait_event(main, chip.recorded(side));
  chip->copy(main, &result, memory, 1);
  return result;
}

}  // namespace

TEST(the_same_seed_is_the_same_order) {
  std::set<std::string> orders;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const std::string first = order(seed);
    CHECK(first.size() == 90);
    CHECK(first == order(seed));
    orders.insert(first);
  }
  CHECK(orders.size() >= 18);
}

TEST(a_missing_wait_is_found) {
  int num_wrong = 0, num_right = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    (read_of_side(seed, /*waits=*/false) == 2 ? num_right : num_wrong)++;
  }
  CHECK(num_wrong > 0 && num_right > 0);
}

TEST(a_wait_is_always_kept) {
  for (uint64_t seed = 0; seed < 200; ++seed) CHECK(read_of_side(seed, /*waits=*/true) == 2);
}

TEST(a_lazy_stream_stays_behind_for_long) {
  // Some seed runs all of main before any of side, and some the other way round.
  bool side_last = false, side_first = false;
  for (uint64_t seed = 0; seed < 100 && !(side_last && side_first); ++seed) {
    Chip chip(Launch::kChaos, seed);
    const Stream main = chip.inline_stream(), side = chip.side_stream();
    std::string ran;
    for (int i = 0; i < 6; ++i) {
      chip.submit(side, [&] { ran += 's'; });
      chip.submit(main, [&] { ran += 'm'; });
    }
    chip->synchronize_stream(main);
    chip->synchronize_stream(side);
    side_last |= ran == "mmmmmmssssss";
    bool always_ahead = true;
    for (size_t i = 1; i <= ran.size(); ++i) {
      const auto num_side = std::count(ran.begin(), ran.begin() + static_cast<std::ptrdiff_t>(i), 's');
      always_ahead &= 2 * static_cast<size_t>(num_side) >= i;
    }
    side_first |= always_ahead;
  }
  CHECK(side_last && side_first);
}

TEST(polling_makes_progress) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Chip chip(Launch::kChaos, seed);
    const Stream main = chip.inline_stream(), side = chip.side_stream();
    int ran = 0;
    for (int i = 0; i < 10; ++i) chip.submit(side, [&] { ++ran; });
    const Event event = chip.recorded(side);
    chip->wait_event(main, event);
    while (!chip->query_event(event)) {
    }
    CHECK(ran == 10);
    while (!chip->query_stream(main)) {
    }
  }
}

TEST(chaos_bounds_what_is_pending) {
  Chip chip(Launch::kChaos, 3);
  const Stream side = chip.side_stream();
  int ran = 0;
  for (int i = 0; i < 20000; ++i) chip.submit(side, [&] { ++ran; });
  chip->synchronize_stream(side);
  CHECK(ran == 20000);
}

}  // namespace loom::test
