#pragma once
#include "thrust/selecting.h"
