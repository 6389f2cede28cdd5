#pragma once
#include "thrust/scanning.h"
