// The runtime's clock. It stands in util, since the drivers of the host stamp their events with it, too.
#pragma once

#include "util/clock.h"

namespace loom::runtime {

namespace clock = loom::clock;

}  // namespace loom::runtime
