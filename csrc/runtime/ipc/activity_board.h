// What the devices of this process do, in one piece of memory that other processes may read: device memory
// that is taken, and when each stream ran what (telemetry/activity_page.h). Private until it is published.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "driver/activity.h"
#include "driver/driver.h"

namespace loom::runtime::activity_board {

struct Listed {
  int physical = 0;  // the device's index among those of the machine
  std::string chip;
};

// Once, before the devices are made, index by index.
void start(const std::vector<Listed>& devices);
// Where a stream of a device, by its id, records what it runs; null before start() and for ids beyond the
// pools'.
driver::StreamActivity* slot(int device, int64_t stream) noexcept;
// Slot of the runtime's internal stream.
constexpr int64_t kOwnStream = 129;

// To be called when memory was taken from a device or given back. Drivers of other devices than the
// program's own (a dry run's, those that tests make) are passed over.
void note_memory(const driver::Driver& driver, int device, int driver_index) noexcept;

// Puts everything in a file of at least bytes() bytes that other processes read; the caller keeps it open.
// Throws Error when it cannot be mapped.
void publish(int file);
size_t bytes() noexcept;
// A copy of everything; empty before start().
std::string snapshot();

}  // namespace loom::runtime::activity_board
