// Where these functions were before they came to ATen.
#pragma once
#include <ATen/cuda/Atomic.cuh>
