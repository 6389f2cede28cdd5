#include <pybind11/stl.h>

#include "torch/bindings/bindings.h"
#include "torch/inference/infer.h"
#include "torch/kernels/attention/attention_choice.h"

namespace py = pybind11;

namespace loom::glue {

namespace {

py::dict op_facts(const std::string& name, const std::string& overload) {
  Op& op = Op::named(name.c_str(), overload.c_str());
  py::dict facts;
  facts["name"] = op.record.full_name;
  facts["id"] = op.record.id;
  facts["shape_class"] = runtime::name_of(op.record.shape_class);
  facts["flags"] = op.facts.flags;
  facts["is_served"] = op.is_served();
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

template <bool (*can_use)(const sdp::sdp_params&, bool)>
void bind_choice(py::module_& m, const char* name) {
  m.def(
      name,
      [](const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
         const std::optional<at::Tensor>& mask, double dropout, bool is_causal, bool enable_gqa,
         bool is_told) {
        return can_use({query, key, value, mask, dropout, is_causal, enable_gqa}, is_told);
      },
      py::arg("query"), py::arg("key"), py::arg("value"), py::arg("mask"), py::arg("dropout"),
      py::arg("is_causal"), py::arg("enable_gqa"), py::arg("is_told"));
}

}  // namespace

void bind_ops(py::module_& m) {
  m.def("op_facts", &op_facts, py::arg("name"), py::arg("overload") = "");
  m.def("inference_counts", &counts_of_inference);
  m.def("check_inference", &check_inference, py::arg("is_on"));
  m.def("inference_checks", &found_by_checks);
  bind_choice<&can_use_flash_attention>(m, "can_use_flash_attention");
  bind_choice<&can_use_efficient_attention>(m, "can_use_efficient_attention");
  bind_choice<&can_use_cudnn_attention>(m, "can_use_cudnn_attention");
}

}  // namespace loom::glue
