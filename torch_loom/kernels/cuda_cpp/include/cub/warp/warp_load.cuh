#pragma once
#include "cub/warp/warp_items.h"
