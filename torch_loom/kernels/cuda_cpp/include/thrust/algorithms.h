// Every algorithm of this subset of thrust. What of real thrust's headers are names only includes what it is
// about.
#pragma once
#include "thrust/binary_search.h"
#include "thrust/memory.h"
#include "thrust/reducing.h"
#include "thrust/replacing.h"
#include "thrust/scanning.h"
#include "thrust/selecting.h"
#include "thrust/sorting.h"
#include "thrust/transforming.h"
