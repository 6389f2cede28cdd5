#pragma once
#include "thrust/vector.h"
