// What the build of a CUDA library would have written.
#pragma once
