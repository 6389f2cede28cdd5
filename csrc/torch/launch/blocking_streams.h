// The order that CUDA gives its default stream: work there begins when all that was given to blocking streams
// before has ended, and theirs begins when its has. Blocking are those of cudaStreamCreate(), and not those
// of PyTorch or with cudaStreamNonBlocking.
#pragma once

#include "runtime/commands.h"

namespace loom::glue {

void note_blocking_stream(runtime::StreamRef stream);
bool is_blocking_stream(runtime::StreamRef stream);

// Before a command is given to a stream.
void order_streams(runtime::StreamRef stream);

}  // namespace loom::glue
