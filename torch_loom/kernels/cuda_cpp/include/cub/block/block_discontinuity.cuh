#pragma once
#include "cub/block/block_neighbors.h"
