#pragma once
#include "thrust/replacing.h"
