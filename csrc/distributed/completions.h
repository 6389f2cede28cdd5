// What programs ask to have called when a collective has ended runs in a thread of its own: in that of a
// stream it could wait for the stream, or for Python's lock while its owner waits for the stream.
#pragma once

#include <functional>

namespace loom::distributed {

// Calls it some time, in the order of the calls of this; starts the thread. It must not throw.
void call_later(std::function<void()> body);

}  // namespace loom::distributed
