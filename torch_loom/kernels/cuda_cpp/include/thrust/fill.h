#pragma once
#include "thrust/transforming.h"
