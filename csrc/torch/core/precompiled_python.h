// What the files of csrc that speak to Python include beside that, compiled once (setup.py).
#pragma once

#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include "torch/core/precompiled.h"
