#include "sum.h"

int doubled(int number) { return kTwice * number; }
