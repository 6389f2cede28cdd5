#pragma once
#include "cub/block/block_sort.h"
