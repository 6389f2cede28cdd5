#include "torch/bindings/op_bindings.h"

#include <pybind11/stl.h>

#include "torch/dispatch/infer.h"

namespace py = pybind11;

namespace loom::glue {

namespace {

py::dict op_facts(const std::string& name, const std::string& overload) {
  const Op& op = Op::named(name.c_str(), overload.c_str());
  py::dict facts;
  facts["name"] = op.record.full_name;
  facts["id"] = op.record.id;
  facts["shape_class"] = runtime::name_of(op.record.shape_class);
  facts["flags"] = op.facts.flags;
  facts["can_queue"] = op.can_queue;
  facts["has_cpp_shape_function"] = static_cast<bool>(op.shape_function());
  return facts;
}

py::dict counts_of_inference() {
  const InferenceCounts counts = inference_counts();
  py::dict out;
  out["known"] = counts.known;
  out["cpp"] = counts.cpp;
  out["python"] = counts.python;
  out["engine"] = counts.engine;
  out["unknown"] = counts.unknown;
  return out;
}

py::list found_by_checks() {
  py::list out;
  for (const InferenceCheck& check : inference_checks())
    out.append(py::make_tuple(check.op, check.finding, check.count, check.example));
  return out;
}

}  // namespace

void bind_ops(py::module_& m) {
  m.def("op_facts", &op_facts, py::arg("name"), py::arg("overload") = "");
  m.def("inference_counts", &counts_of_inference);
  m.def("check_inference", &check_inference, py::arg("is_on"));
  m.def("inference_checks", &found_by_checks);
}

}  // namespace loom::glue
