#pragma once
#include "cub/device/device_segmented_sort.cuh"
