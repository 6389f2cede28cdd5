#pragma once
#include "cub/block/block_exchange.cuh"
#include "cub/block/block_load.cuh"
#include "cub/block/block_reduce.cuh"
#include "cub/block/block_scan.cuh"
#include "cub/block/block_store.cuh"
#include "cub/device/device.cuh"
#include "cub/warp/warp_reduce.cuh"
