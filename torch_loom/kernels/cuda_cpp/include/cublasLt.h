#pragma once
#include "loom_cuda/library_handles.h"
