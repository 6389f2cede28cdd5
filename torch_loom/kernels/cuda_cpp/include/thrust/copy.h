#pragma once
#include "thrust/selecting.h"
#include "thrust/transforming.h"
