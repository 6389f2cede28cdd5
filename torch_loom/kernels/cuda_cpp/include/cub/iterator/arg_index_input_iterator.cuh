#pragma once
#include "cub/iterator/iterators.h"
