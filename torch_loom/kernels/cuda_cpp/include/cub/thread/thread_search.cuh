#pragma once
#include "cub/thread/thread_items.h"
