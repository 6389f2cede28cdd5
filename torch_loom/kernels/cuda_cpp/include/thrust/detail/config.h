#pragma once
#include "thrust/version.h"
