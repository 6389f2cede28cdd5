// Events shared between processes. A shared page holds the version recorded last and the version finished
// last. The recording process holds a lock, so that the others see when it was killed.
#pragma once

#include <string>

#include "runtime/commands.h"

namespace loom::runtime::shared_events {

// Whether any event is shared: then commands.cpp asks the functions below.
bool are_there() noexcept;
bool is_shared(driver::Event event);

// Lets other processes open an event of this process. `stream`: where it was recorded last; null if never. A
// second call does nothing.
void share(driver::Event event, const StreamRef* stream);
// For one receiver or many, while this process keeps the event. Throws InvalidArgument for other events.
std::string handle_of(driver::Event event);
// Binds an unrecorded event to a received handle. Throws SharingError for a damaged handle, and if the
// event's process has ended or has destroyed it.
void open(driver::Event event, const std::string& handle);

// As the commands of the same names, for the events of this file; false for all others. What another process
// has recorded last is waited for without the driver. They throw SharingError when that process was killed
// before it finished, or the work before the event has failed there.
void recorded(driver::Event event, StreamRef stream);
bool wait(StreamRef stream, driver::Event event);
bool query(driver::Event event, bool* is_finished);
bool synchronize(driver::Event event);
void forget(driver::Event event);

}  // namespace loom::runtime::shared_events
