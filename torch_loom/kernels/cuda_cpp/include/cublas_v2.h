// Handles of NVIDIA's libraries of matrix products: their names, for headers that mention them. A program
// that calls the libraries does not link.
#pragma once
#include "loom_cuda/library_handles.h"
