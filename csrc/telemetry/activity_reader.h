// What the processes of a machine do with its devices, read from the pages that they publish.
//
// A process holds a lock on its file, which the kernel takes back when the process ends, however it ends. A
// file without a holder is left over: the process that finds it removes it. A lock names its holder, so a
// process is never mistaken for an earlier process with the same id. What another process has written is not
// trusted: a page of another version, or with figures out of bounds, is passed over. Files of other users are
// not looked at.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace loom::telemetry {

// The words of a driver::StreamActivity: when what runs now began, whether that is a copy, six unused; then
// the buckets of its kernels and those of its copies.
using Stream = std::vector<uint64_t>;

// What one process does with one device.
struct Process {
  int pid = 0;
  int physical = 0;  // the device's index on the machine
  uint64_t memory_bytes = 0, capacity_bytes = 0;
  std::string chip;  // what the device is to it; any bytes
  int bucket_shift = 0;
  std::vector<Stream> streams;  // those that have run anything
};

// Shares of the last second, 0 … 1.
struct Busy {
  double kernels = 0, kernels_or_copies = 0;
};

// Of all devices, this process first. No file that this process has published is opened: to close it would
// give up its lock.
std::vector<Process> processes(const std::string& machine);
// Removes what killed processes have published on the machine that was last asked for, as processes() does.
void remove_left_over();
// Of one of them.
std::vector<Process> users_of(const std::string& machine, int physical);

// What a page says, if it is that of the process; empty if it is not a page.
std::vector<Process> parse(std::string_view page, int pid);

// For which share of the second before `now` (clock::host_ticks) kernels ran in these processes, and kernels
// or copies. What streams did in the same 17 to 34 ms is taken to overlap by chance.
Busy busy_share(const std::vector<Process>& found, uint64_t now);
// The same of streams whose buckets are of one size; `period` is the second, in ticks.
Busy busy_share(const std::vector<const Stream*>& streams, int shift, uint64_t now, uint64_t period);

}  // namespace loom::telemetry
