#pragma once
#include "cub/util_device.cuh"
