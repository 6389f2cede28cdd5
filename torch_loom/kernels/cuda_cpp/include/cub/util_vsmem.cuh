#pragma once
#include "cub/common.h"
