#pragma once
#include "thrust/pair.h"
#include "thrust/transforming.h"
