#pragma once
#include "thrust/reducing.h"
