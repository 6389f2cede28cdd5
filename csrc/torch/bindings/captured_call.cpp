#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/alias.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/set.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "torch/bindings/bindings.h"
#include "torch/bindings/guarded.h"
#include "torch/core/device.h"
#include "torch/dispatch/graph.h"

namespace py = pybind11;

namespace loom::glue {

namespace {

// What a tensor is, but for whether gradients are wanted: a call changes no graph of autograd.
c10::DispatchKeySet kind_of(const at::Tensor& tensor) {
  return tensor.key_set() - c10::autograd_dispatch_keyset_with_ADInplaceOrView;
}

// Each element of a tensor once: a copy may not write to an expanded dimension.
at::Tensor without_repeats(at::Tensor tensor) {
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    if (tensor.stride(dim) == 0 && tensor.size(dim) > 1) tensor = tensor.narrow(dim, 0, 1);
  }
  return tensor;
}

// A copy with the very strides of the original: code compiled for them reads it.
at::Tensor copy_as_laid_out(const at::Tensor& tensor) {
  if (tensor.is_non_overlapping_and_dense() || tensor.numel() == 0) return at::clone(tensor);
  int64_t extent = 1;
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) extent += (tensor.size(dim) - 1) * tensor.stride(dim);
  return at::as_strided(at::clone(at::as_strided(tensor, {extent}, {1}, tensor.storage_offset())),
                        tensor.sizes(), tensor.strides(), 0);
}

constexpr size_t kAlignment = 16;  // of the widest dtype

// The bytes of its storage that a tensor reaches.
struct Extent {
  size_t begin = 0, end = 0;
};

Extent extent_of(const at::Tensor& tensor) {
  int64_t last = 0;
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) last += (tensor.size(dim) - 1) * tensor.stride(dim);
  const auto begin = static_cast<size_t>(tensor.storage_offset());
  return {begin * tensor.itemsize(), (begin + static_cast<size_t>(last) + 1) * tensor.itemsize()};
}

// Whether a copy of the tensor's bytes is a copy of the tensor.
bool is_plain(const at::Tensor& tensor) {
  return tensor.layout() == at::kStrided && tensor.has_storage() && tensor.numel() != 0 &&
         !tensor.is_conj() && !tensor.is_neg() && !tensor.is_quantized() && !tensor.is_nested();
}

// A view of `storage` that lies in it as `tensor` does in its own, so many bytes earlier.
at::Tensor moved_to(const c10::Storage& storage, const at::Tensor& tensor, size_t earlier_bytes) {
  at::Tensor made = at::empty({0}, tensor.options());
  const auto offset = tensor.storage_offset() - static_cast<int64_t>(earlier_bytes / tensor.itemsize());
  return made.set_(storage, offset, tensor.sizes(), tensor.strides());
}

// One argument of the function.
struct Operand {
  py::object value;    // of an argument that is no tensor: the captured value
  at::Tensor own;      // what the graph reads: its own memory, or the operand where `is_static`
  at::Tensor written;  // the elements of `own` that a call copies to
  bool has_repeats = false;
  bool is_static = false;
  c10::DispatchKeySet kind;
  const void* address = nullptr;  // of a static one

  bool is_like(PyObject* given) const {
    if (!own.defined()) {
      if (Py_TYPE(given) != Py_TYPE(value.ptr())) return false;
      const int is_equal = PyObject_RichCompareBool(given, value.ptr(), Py_EQ);
      if (is_equal < 0) throw py::error_already_set();
      return is_equal == 1;
    }
    if (!THPVariable_Check(given)) return false;
    const at::Tensor& tensor = THPVariable_Unpack(given);
    return kind_of(tensor) == kind && tensor.dtype() == own.dtype() && tensor.device() == own.device() &&
           tensor.sizes() == own.sizes() && tensor.strides() == own.strides() &&
           (!is_static || tensor.const_data_ptr() == address);
  }
};

// torch_loom/image/replay.py decides what is captured, and calls this for what is alike.
class CapturedCall {
 public:
  // `graph` ran the function on `own`, which left `results`: tensors of its memory, or other values.
  CapturedCall(py::object graph, const py::sequence& given, const py::sequence& own,
               const std::vector<bool>& is_static, const py::sequence& results)
      : keeps_(std::move(graph)), graph_(keeps_.cast<LoomGraph&>()) {
    for (size_t i = 0; i < given.size(); ++i) {
      Operand operand;
      operand.value = given[i];
      operand.is_static = is_static.at(i);
      if (THPVariable_Check(operand.value.ptr())) {
        const at::Tensor& tensor = THPVariable_Unpack(operand.value.ptr());
        operand.kind = kind_of(tensor);
        operand.own = own[i].cast<at::Tensor>();
        operand.written = without_repeats(operand.own);
        operand.has_repeats = operand.written.numel() != operand.own.numel();
        if (operand.is_static) operand.address = tensor.const_data_ptr();
        operand.value = py::none();  // not kept alive
      }
      operands_.push_back(std::move(operand));
    }
    for (const py::handle& each : results) results_.push_back(result_of(each));
    share_what_overlaps();
    last_stream_ = runtime::current_stream_of(graph_.device());
  }

  // Returns the results, tensors of their own, or None: the operands differ from those captured, or a mode or
  // reader observes single ops.
  py::object run(const py::object& given) {
    PyObject* const sequence = given.ptr();
    TORCH_CHECK_TYPE(PyList_Check(sequence) || PyTuple_Check(sequence), "expected a list or a tuple");
    if (PySequence_Fast_GET_SIZE(sequence) != static_cast<Py_ssize_t>(operands_.size())) return py::none();
    if (c10::impl::TorchDispatchModeTLS::any_modes_set() || !graph_.is_seen()) return py::none();
    c10::SmallVector<at::Tensor, 8> moved;
    for (size_t i = 0; i < operands_.size(); ++i) {
      PyObject* const element = PySequence_Fast_GET_ITEM(sequence, i);
      if (!operands_[i].is_like(element)) return py::none();
      if (operands_[i].own.defined() && !operands_[i].is_static) moved.push_back(THPVariable_Unpack(element));
    }
    c10::SmallVector<at::Tensor, 4> results;
    bool is_run = false;
    {
      const py::gil_scoped_release no_gil;
      is_run = replay(moved, results);
    }
    if (!is_run) return py::none();
    py::list out(results_.size());
    for (size_t i = 0, next = 0; i < results_.size(); ++i) {
      const Result& result = results_[i];
      PyObject* element = nullptr;
      switch (result.kind) {
        case Result::Kind::kValue:
          element = py::object(result.value).release().ptr();
          break;
        case Result::Kind::kOperand:
          element = py::reinterpret_borrow<py::object>(PySequence_Fast_GET_ITEM(sequence, result.position))
                        .release()
                        .ptr();
          break;
        case Result::Kind::kEarlier:
          element =
              py::reinterpret_borrow<py::object>(PyList_GET_ITEM(out.ptr(), result.position)).release().ptr();
          break;
        default:
          element = py::cast(std::move(results[next++])).release().ptr();
      }
      PyList_SET_ITEM(out.ptr(), i, element);
    }
    return out;
  }

 private:
  struct Result {
    enum class Kind {
      kValue,    // no tensor
      kOperand,  // the operand of this position itself
      kEarlier,  // the same tensor as the result of this position
      kShared,   // in the memory of a static operand
      kCopied,   // in the graph's memory
      kPart,     // in memory of the graph that other results reach, too: `position` in `shared_`
    };
    Kind kind = Kind::kCopied;
    size_t position = 0;
    py::object value;
    at::Tensor tensor;
  };

  // Memory of the graph that several results reach. It is copied once, so that they are views of one another
  // as they were.
  struct Shared {
    at::Tensor bytes;
    size_t begin = 0;
  };

  void share_what_overlaps() {
    std::vector<size_t> order;
    for (size_t i = 0; i < results_.size(); ++i) {
      if (results_[i].kind == Result::Kind::kCopied && is_plain(results_[i].tensor)) order.push_back(i);
    }
    const auto storage_of = [&](size_t i) { return results_[i].tensor.storage().unsafeGetStorageImpl(); };
    std::sort(order.begin(), order.end(), [&](size_t left, size_t right) {
      return std::pair(storage_of(left), extent_of(results_[left].tensor).begin) <
             std::pair(storage_of(right), extent_of(results_[right].tensor).begin);
    });
    for (size_t first = 0, next = 0; first < order.size(); first = next) {
      Extent whole = extent_of(results_[order[first]].tensor);
      for (next = first + 1; next < order.size() && storage_of(order[next]) == storage_of(order[first]);
           ++next) {
        const Extent extent = extent_of(results_[order[next]].tensor);
        if (extent.begin >= whole.end) break;
        whole.end = std::max(whole.end, extent.end);
      }
      if (next == first + 1) continue;
      // Elements of every dtype lie in the copy as they are aligned here.
      const size_t begin = whole.begin / kAlignment * kAlignment;
      const at::Tensor& result = results_[order[first]].tensor;
      at::Tensor bytes = at::empty({0}, result.options().dtype(at::kByte));
      bytes.set_(result.storage(), static_cast<int64_t>(begin), {static_cast<int64_t>(whole.end - begin)},
                 {1});
      for (size_t i = first; i < next; ++i) {
        results_[order[i]].kind = Result::Kind::kPart;
        results_[order[i]].position = shared_.size();
      }
      shared_.push_back({std::move(bytes), begin});
    }
  }

  bool is_written(const at::Tensor& tensor) const {
    return graph_.writes_to(tensor.storage().data(), tensor.storage().nbytes());
  }

  Result result_of(const py::handle& each) const {
    using Kind = Result::Kind;
    if (!THPVariable_Check(each.ptr())) {
      return {Kind::kValue, 0, py::reinterpret_borrow<py::object>(each), {}};
    }
    const at::Tensor& tensor = THPVariable_Unpack(each.ptr());
    for (size_t i = 0; i < operands_.size(); ++i) {
      // Code may reuse the memory of an operand that it alone has for a result.
      if (operands_[i].own.is_same(tensor) && (operands_[i].is_static || !is_written(tensor))) {
        return {Kind::kOperand, i, {}, {}};
      }
    }
    for (size_t i = 0; i < results_.size(); ++i) {
      if (results_[i].tensor.is_same(tensor)) return {Kind::kEarlier, i, {}, {}};
    }
    for (const Operand& operand : operands_) {
      if (operand.is_static && operand.own.defined() && operand.own.is_alias_of(tensor)) {
        return {Kind::kShared, 0, {}, tensor};
      }
    }
    return {Kind::kCopied, 0, {}, tensor};
  }

  bool replay(c10::ArrayRef<at::Tensor> moved, c10::SmallVectorImpl<at::Tensor>& results) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const runtime::StreamRef stream = runtime::current_stream_of(graph_.device());
    if (runtime::is_captured(stream)) return false;
    if (!(stream == last_stream_)) follow(stream);
    const at::AutoDispatchBelowADInplaceOrView without_gradients;
    const at::Tensor* next = moved.data();
    for (const Operand& operand : operands_) {
      if (!operand.own.defined() || operand.is_static) continue;
      operand.written.copy_(operand.has_repeats ? without_repeats(*next) : *next);
      ++next;
    }
    graph_.replay();
    c10::SmallVector<at::Tensor, 4> copies;
    for (const Shared& each : shared_) copies.push_back(at::clone(each.bytes));
    for (const Result& item : results_) {
      if (item.kind == Result::Kind::kPart) {
        results.push_back(
            moved_to(copies[item.position].storage(), item.tensor, shared_[item.position].begin));
      }
      if (item.kind == Result::Kind::kCopied) results.push_back(copy_as_laid_out(item.tensor));
      if (item.kind == Result::Kind::kShared) results.push_back(at::alias(item.tensor));
    }
    return true;
  }

  // The graph's memory may still be in use on the stream of the last call.
  void follow(runtime::StreamRef stream) {
    translated([&] {
      const driver::Event event = runtime::create_event(stream.device, {/*timing=*/false});
      runtime::record_event(event, last_stream_);
      runtime::wait_event(stream, event);
      runtime::destroy_event(event);
    });
    last_stream_ = stream;
  }

  const py::object keeps_;
  LoomGraph& graph_;
  std::vector<Operand> operands_;
  std::vector<Result> results_;
  std::vector<Shared> shared_;
  std::mutex mutex_;  // one call at a time has the graph's memory
  runtime::StreamRef last_stream_{};
};

}  // namespace

void bind_captured_calls(py::module_& m) {
  py::class_<CapturedCall>(m, "CapturedCall")
      .def(py::init<py::object, const py::sequence&, const py::sequence&, const std::vector<bool>&,
                    const py::sequence&>(),
           py::arg("graph"), py::arg("given"), py::arg("own"), py::arg("is_static"), py::arg("results"))
      .def("run", guarded(&CapturedCall::run));
}

}  // namespace loom::glue
