#pragma once

#include <c10/core/Event.h>
#include <pybind11/pybind11.h>

namespace loom::glue {

// The event of a torch.Event; a TypeError where the object is none.
c10::Event& event_of(const pybind11::object& object);

}  // namespace loom::glue
