// The tape: who is told of what while readers come and go.
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "check.h"
#include "runtime/tape.h"

namespace loom::test {

using namespace runtime;

namespace {

struct Counting final : TapeReader {
  explicit Counting(CommandKinds begins = kAllKinds, CommandKinds ends = kAllKinds)
      : TapeReader(begins, ends) {}
  void begin(const Command&) override {
    ++begun;
    if (throws) throw std::runtime_error("refused");
  }
  void end(const Command& command) override { command.has_failed ? ++failed : ++ended; }
  std::atomic<int> begun{0}, ended{0}, failed{0};
  std::atomic<bool> throws{false};
};

void tell(bool fails = false) {
  Command command = describe(CommandKind::kFill, 0, 0);
  tape::Told told;
  try {
    tape::begin(command, told);
  } catch (...) {
    command.has_failed = true;
    tape::end(command, told);
    throw;
  }
  command.has_failed = fails;
  tape::end(command, told);
}

}  // namespace

TEST(a_reader_that_comes_late_is_told_of_no_end) {
  const auto early = std::make_shared<Counting>(), late = std::make_shared<Counting>();
  tape::attach(early);
  Command command = describe(CommandKind::kFill, 0, 0);
  tape::Told told;
  tape::begin(command, told);
  tape::attach(late);
  tape::end(command, told);
  CHECK(early->ended == 1 && late->ended == 0);
  tape::detach(early);
  tape::detach(late);
  CHECK(!tape::is_read());
}

TEST(a_refusal_ends_the_command_for_those_who_knew_of_it) {
  const auto first = std::make_shared<Counting>(), second = std::make_shared<Counting>(),
             third = std::make_shared<Counting>();
  for (const auto& each : {first, second, third}) tape::attach(each);
  second->throws = true;
  bool has_thrown = false;
  try {
    tell();
  } catch (const std::runtime_error&) {
    has_thrown = true;
  }
  CHECK(has_thrown);
  CHECK(first->failed == 1 && second->failed == 0 && third->begun == 0 && third->failed == 0);
  for (const auto& each : {first, second, third}) tape::detach(each);
}

TEST(only_kinds_that_are_wanted_are_told) {
  const auto reader = std::make_shared<Counting>(kinds_of({CommandKind::kCopy}), 0);
  tape::attach(reader);
  CHECK(tape::is_told(CommandKind::kCopy) && !tape::is_told(CommandKind::kFill));
  tell();
  CHECK(reader->begun == 0);
  tape::detach(reader);
}

namespace {

// Calls what a test wants within begin().
struct Calling final : TapeReader {
  explicit Calling(std::function<void()> call) : call(std::move(call)) {}
  void begin(const Command&) override { call(); }
  const std::function<void()> call;
};

}  // namespace

TEST(a_reader_that_detaches_itself_waits_for_other_threads) {
  std::shared_ptr<TapeReader> reader;
  const auto own = std::this_thread::get_id();
  Gate is_told;
  std::atomic<bool> has_returned{false}, was_left_alone{false};
  reader = std::make_shared<Calling>([&] {
    if (std::this_thread::get_id() == own) {
      tape::detach(reader);
      has_returned = true;
      return;
    }
    is_told.open();
    // Long enough for a detach() that does not wait.
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
    while (!has_returned && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    was_left_alone = has_returned.load();
  });
  tape::attach(reader);
  std::thread other([] { tell(); });
  is_told.wait();
  tell();
  CHECK(has_returned);
  other.join();
  CHECK(!was_left_alone);
  CHECK(!tape::is_read());
}

TEST(readers_that_detach_one_another_do_not_wait_for_one_another) {
  std::shared_ptr<TapeReader> first, second;
  const auto own = std::this_thread::get_id();
  Gate in_first, in_second;
  first = std::make_shared<Calling>([&] {
    if (std::this_thread::get_id() != own) return;
    in_first.open();
    in_second.wait();
    tape::detach(second);
  });
  second = std::make_shared<Calling>([&] {
    if (std::this_thread::get_id() == own) return;
    in_second.open();
    in_first.wait();
    tape::detach(first);
  });
  for (const auto& each : {first, second}) tape::attach(each);
  std::thread other([] { tell(); });
  tell();
  other.join();
  CHECK(!tape::is_read());
}

TEST(readers_come_and_go_while_threads_tell) {
  std::atomic<bool> is_over{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      while (!is_over) {
        if (tape::is_read()) tell();
      }
    });
  }
  for (int i = 0; i < 300; ++i) {
    const auto reader = std::make_shared<Counting>();
    tape::attach(reader);
    tell();
    tape::detach(reader);
    const int begun = reader->begun;
    CHECK(begun >= 1 && reader->ended <= begun);
    CHECK(reader.use_count() == 1);  // nobody keeps it
  }
  is_over = true;
  for (std::thread& thread : threads) thread.join();
}

}  // namespace loom::test
