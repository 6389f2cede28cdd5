// All of cub's functions over whole arrays.
#pragma once
#include "cub/device/device_for.cuh"
#include "cub/device/device_histogram.cuh"
#include "cub/device/device_merge_sort.cuh"
#include "cub/device/device_radix_sort.cuh"
#include "cub/device/device_reduce.cuh"
#include "cub/device/device_scan.cuh"
#include "cub/device/device_segmented_sort.cuh"
#include "cub/device/device_select.cuh"
