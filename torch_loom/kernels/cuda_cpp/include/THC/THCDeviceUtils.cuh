// Where these functions were before they came to ATen.
#pragma once
#include <ATen/cuda/DeviceUtils.cuh>
