#pragma once
#include "cub/traits.h"
