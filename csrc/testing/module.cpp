// The Python module torch_loom._C_testing: layers below PyTorch's glue, for the tests and benchmarks of a
// checkout. It is not in the wheel, and has drivers of its own: nothing here is a device of torch.loom.
#include <pybind11/pybind11.h>

#include "testing/bindings.h"

PYBIND11_MODULE(_C_testing, m) {
  loom::testing::bind_driver(m);
  loom::testing::bind_allocator(m);
  loom::testing::bind_clock(m);
  loom::testing::bind_activity(m);
}
