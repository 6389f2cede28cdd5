#pragma once
#include "thrust/sorting.h"
