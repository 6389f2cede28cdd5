// Tuples and pairs of thrust are the host's.
#pragma once

#include <tuple>
#include <utility>

#include "thrust/pair.h"

namespace thrust {

struct null_type {};
using std::get;
using std::ignore;
using std::make_tuple;
using std::tie;
using std::tuple;
using std::tuple_element;
using std::tuple_element_t;
using std::tuple_size;

}  // namespace thrust
