#pragma once
#include "thrust/reducing.h"
#include "thrust/selecting.h"
