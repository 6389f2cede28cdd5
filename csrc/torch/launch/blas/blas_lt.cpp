// cuBLASLt's functions on the devices: a product of torch's and, where something follows it, ops on it in the
// precision of its sums.
#include <ATen/ops/arange.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/relu.h>
#include <loom_cuda/blas_lt.h>

#include <cstring>
#include <type_traits>

#include "torch/launch/blas/blas_views.h"

namespace loom::glue {

namespace {

// What an opaque struct of the program's holds.
struct MatmulState {
  cublasComputeType_t compute;
  cudaDataType scale;
  int32_t pointer_mode = CUBLASLT_POINTER_MODE_HOST;
  int32_t op_a = CUBLAS_OP_N, op_b = CUBLAS_OP_N, op_c = CUBLAS_OP_N;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  int32_t bias_type = -1, aux_type = -1;  // −1: that of D
  int32_t num_cores = 0;                  // kept, and without effect, as the next
  int8_t is_fast = 0;
  void *bias = nullptr, *aux = nullptr;
  int64_t bias_stride = 0, aux_leading = 0, aux_stride = 0;
  const float *a_scale = nullptr, *b_scale = nullptr, *c_scale = nullptr, *d_scale = nullptr;
  float* d_largest = nullptr;
};
struct LayoutState {
  cudaDataType type;
  int32_t order = CUBLASLT_ORDER_COL;
  uint64_t rows, columns;
  int64_t leading;
  int32_t batches = 1;
  int64_t stride = 0;
};

template <typename State, typename Opaque>
State& state_of(Opaque* opaque) {
  static_assert(sizeof(State) <= sizeof(Opaque) && std::is_trivially_copyable_v<State>);
  expect(opaque != nullptr);
  return *reinterpret_cast<State*>(opaque);
}

struct Field {
  void* at;
  size_t bytes;
};
template <typename T>
Field field(T& value) {
  return {&value, sizeof value};
}

Field field_of(MatmulState& state, int attribute) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE:
      return field(state.compute);
    case CUBLASLT_MATMUL_DESC_SCALE_TYPE:
      return field(state.scale);
    case CUBLASLT_MATMUL_DESC_POINTER_MODE:
      return field(state.pointer_mode);
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return field(state.op_a);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return field(state.op_b);
    case CUBLASLT_MATMUL_DESC_TRANSC:
      return field(state.op_c);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return field(state.epilogue);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return field(state.bias);
    case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE:
      return field(state.bias_stride);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return field(state.aux);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return field(state.aux_leading);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE:
      return field(state.aux_stride);
    case CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET:
      return field(state.num_cores);
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER:
      return field(state.a_scale);
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER:
      return field(state.b_scale);
    case CUBLASLT_MATMUL_DESC_C_SCALE_POINTER:
      return field(state.c_scale);
    case CUBLASLT_MATMUL_DESC_D_SCALE_POINTER:
      return field(state.d_scale);
    case CUBLASLT_MATMUL_DESC_AMAX_D_POINTER:
      return field(state.d_largest);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE:
      return field(state.aux_type);
    case CUBLASLT_MATMUL_DESC_FAST_ACCUM:
      return field(state.is_fast);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return field(state.bias_type);
    default:
      throw Refused{CUBLAS_STATUS_NOT_SUPPORTED};
  }
}

Field field_of(LayoutState& state, int attribute) {
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE:
      return field(state.type);
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
      return field(state.order);
    case CUBLASLT_MATRIX_LAYOUT_ROWS:
      return field(state.rows);
    case CUBLASLT_MATRIX_LAYOUT_COLS:
      return field(state.columns);
    case CUBLASLT_MATRIX_LAYOUT_LD:
      return field(state.leading);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return field(state.batches);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return field(state.stride);
    default:
      throw Refused{CUBLAS_STATUS_NOT_SUPPORTED};
  }
}

template <typename F>
cublasStatus_t answered(F&& body) {
  try {
    body();
    return CUBLAS_STATUS_SUCCESS;
  } catch (...) {
    return status_of_exception();
  }
}

template <typename State, typename Opaque>
cublasStatus_t set(Opaque* opaque, int attribute, const void* value, size_t bytes) {
  return answered([&] {
    const Field own = field_of(state_of<State>(opaque), attribute);
    expect(value != nullptr && bytes == own.bytes);
    std::memcpy(own.at, value, bytes);
  });
}
template <typename State, typename Opaque>
cublasStatus_t get(Opaque* opaque, int attribute, void* value, size_t bytes, size_t* written) {
  return answered([&] {
    const Field own = field_of(state_of<State>(opaque), attribute);
    expect(bytes == 0 ? written != nullptr : value != nullptr && bytes == own.bytes);
    if (written != nullptr) *written = own.bytes;
    if (bytes != 0) std::memcpy(value, own.at, bytes);
  });
}

template <typename Opaque>
cublasStatus_t make(Opaque** opaque) {
  if (opaque == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  *opaque = new Opaque{};
  return CUBLAS_STATUS_SUCCESS;
}
template <typename Opaque, typename State>
cublasStatus_t init(Opaque* opaque, size_t size, const State& state) {
  return answered([&] {
    expect(size == sizeof *opaque);
    state_of<State>(opaque) = state;
  });
}

// Of the program's memory, [batches, rows, columns].
at::Tensor matrices(const LayoutState& layout, const void* memory) {
  const auto rows = static_cast<int64_t>(layout.rows), columns = static_cast<int64_t>(layout.columns);
  const bool is_by_rows = layout.order == CUBLASLT_ORDER_ROW;
  expect(is_by_rows || layout.order == CUBLASLT_ORDER_COL, CUBLAS_STATUS_NOT_SUPPORTED);
  expect(rows >= 0 && columns >= 0 && layout.batches >= 0 && layout.stride >= 0);
  expect(layout.leading >= std::max<int64_t>(1, is_by_rows ? columns : rows));
  return view(memory, layout.type, {layout.batches, rows, columns},
              {layout.stride, is_by_rows ? layout.leading : 1, is_by_rows ? 1 : layout.leading});
}

// Parts of an epilogue, each a bit of its number.
enum : uint32_t {
  kRelu = 2,
  kBias = 4,
  kReluGradient = 8,
  kBiasGradient = 16,
  kGelu = 32,
  kGeluGradient = 64,
  kAux = 128,
  kBiasGradientOfA = 256,
  kBiasGradientOfB = 512
};

class Epilogue {
 public:
  Epilogue(const MatmulState& state, const at::Tensor& out, cudaDataType out_type)
      : state_(state), out_(out), out_type_(out_type) {}

  bool does(uint32_t part) const { return (state_.epilogue & part) != 0; }

  // Of the product, before it is rounded to what D holds.
  at::Tensor of(at::Tensor x, const at::Tensor& a, const at::Tensor& b) const {
    if (does(kBias)) x = x.add(bias(out_.size(1)).unsqueeze(-1));
    if (does(kRelu)) {
      if (does(kAux)) keep_signs(x);
      x = at::relu(x);
    }
    if (does(kReluGradient)) x = x.mul(kept_signs());
    if (does(kGelu)) {
      if (does(kAux)) aux().copy_(x);
      x = at::gelu(x, "tanh");
    }
    if (does(kGeluGradient)) x = at::gelu_backward(x, aux().to(x.scalar_type()), "tanh");
    if (does(kBiasGradient)) bias(out_.size(1)).copy_(x.sum(-1));
    if (does(kBiasGradientOfA)) bias(out_.size(1)).copy_(a.sum(-1, false, x.scalar_type()));
    if (does(kBiasGradientOfB)) bias(out_.size(2)).copy_(b.sum(-2, false, x.scalar_type()));
    return x;
  }

 private:
  cudaDataType type(int32_t given) const {
    return given == -1 ? out_type_ : static_cast<cudaDataType>(given);
  }
  at::Tensor bias(int64_t count) const {
    expect(state_.bias != nullptr);
    return view(state_.bias, type(state_.bias_type), {out_.size(0), count}, {state_.bias_stride, 1});
  }
  at::Tensor aux() const {
    expect(state_.aux != nullptr && state_.aux_leading >= out_.size(1));
    return view(state_.aux, type(state_.aux_type), out_.sizes(), {state_.aux_stride, 1, state_.aux_leading});
  }
  // A bit for each element, [batches, columns, bytes of a column].
  at::Tensor signs() const {
    expect(state_.aux != nullptr && state_.aux_leading >= out_.size(1) && state_.aux_leading % 128 == 0);
    const int64_t bytes = state_.aux_leading / 8;
    return view(state_.aux, CUDA_R_8U, {out_.size(0), out_.size(2), bytes},
                {state_.aux_stride / 8, bytes, 1});
  }
  at::Tensor bits() const { return at::arange(8, out_.options().dtype(at::kByte)); }
  void keep_signs(const at::Tensor& x) const {
    const at::Tensor known = signs();
    const at::Tensor positive =
        at::constant_pad_nd(x.gt(0).transpose(1, 2).to(at::kByte), {0, state_.aux_leading - out_.size(1)});
    known.copy_(positive.view({known.size(0), known.size(1), known.size(2), 8})
                    .bitwise_left_shift(bits())
                    .sum(-1, false, at::kByte));
  }
  at::Tensor kept_signs() const {
    const at::Tensor set = signs().unsqueeze(-1).bitwise_right_shift(bits()).bitwise_and(1);
    return set.flatten(2).narrow(2, 0, out_.size(1)).transpose(1, 2);
  }

  const MatmulState& state_;
  const at::Tensor& out_;
  const cudaDataType out_type_;
};

bool is_float8(cudaDataType type) { return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2; }

void check_supported(const MatmulState& state) {
  constexpr uint32_t kKnown = kRelu | kBias | kReluGradient | kBiasGradient | kGelu | kGeluGradient | kAux |
                              kBiasGradientOfA | kBiasGradientOfB | CUBLASLT_EPILOGUE_DEFAULT;
  expect((state.epilogue & ~kKnown) == 0 && state.op_c == CUBLAS_OP_N &&
             state.pointer_mode <= CUBLASLT_POINTER_MODE_DEVICE,
         CUBLAS_STATUS_NOT_SUPPORTED);
}

at::Tensor scaled(const at::Tensor& x, const float* scale) {
  return scale == nullptr ? x : x.mul(view(scale, CUDA_R_32F, {}, {}));
}

}  // namespace

}  // namespace loom::glue

using namespace loom::glue;

// A handle has no state: streams are given in each call.
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  cublasHandle_t made = nullptr;
  const cublasStatus_t status = handle == nullptr ? CUBLAS_STATUS_INVALID_VALUE : cublasCreate(&made);
  if (status == CUBLAS_STATUS_SUCCESS) *handle = reinterpret_cast<cublasLtHandle_t>(made);
  return status;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  return cublasDestroy(reinterpret_cast<cublasHandle_t>(handle));
}
size_t cublasLtGetVersion() { return CUBLAS_VERSION; }
const char* cublasLtGetStatusName(cublasStatus_t status) { return cublasGetStatusName(status); }
const char* cublasLtGetStatusString(cublasStatus_t status) { return cublasGetStatusString(status); }

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t desc, size_t size,
                                               cublasComputeType_t compute, cudaDataType scale) {
  return init(desc, size, MatmulState{compute, scale});
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t compute,
                                        cudaDataType scale) {
  const cublasStatus_t status = make(desc);
  return status != CUBLAS_STATUS_SUCCESS ? status : cublasLtMatmulDescInit(*desc, compute, scale);
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  delete desc;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute, const void* value,
                                              size_t bytes) {
  return set<MatmulState>(desc, attribute, value, bytes);
}
cublasStatus_t cublasLtMatmulDescGetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute, void* value,
                                              size_t bytes, size_t* written) {
  return get<MatmulState>(desc, attribute, value, bytes, written);
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t layout, size_t size,
                                                 cudaDataType type, uint64_t rows, uint64_t columns,
                                                 int64_t leading) {
  LayoutState state{};
  state.type = type;
  state.rows = rows;
  state.columns = columns;
  state.leading = leading;
  return init(layout, size, state);
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t leading) {
  const cublasStatus_t status = make(layout);
  return status != CUBLAS_STATUS_SUCCESS ? status
                                         : cublasLtMatrixLayoutInit(*layout, type, rows, columns, leading);
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void* value,
                                                size_t bytes) {
  return set<LayoutState>(layout, attribute, value, bytes);
}
cublasStatus_t cublasLtMatrixLayoutGetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, void* value,
                                                size_t bytes, size_t* written) {
  return get<LayoutState>(layout, attribute, value, bytes, written);
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t preference, size_t size) {
  return preference == nullptr || size != sizeof *preference ? CUBLAS_STATUS_INVALID_VALUE
                                                             : CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  return make(preference);
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t, const void* value,
                                                    size_t) {
  return preference == nullptr || value == nullptr ? CUBLAS_STATUS_INVALID_VALUE : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t, int wanted,
                                              cublasLtMatmulHeuristicResult_t* results, int* found) {
  if (results == nullptr || found == nullptr || wanted < 1) return CUBLAS_STATUS_INVALID_VALUE;
  *found = 0;
  return answered([&] {
    check_supported(state_of<MatmulState>(desc));
    *results = {{}, 0, CUBLAS_STATUS_SUCCESS, 1.0f, {}};
    *found = 1;
  });
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t*, void*, size_t, cudaStream_t stream) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  return on_stream(stream, [&] {
    const MatmulState& state = state_of<MatmulState>(desc);
    check_supported(state);
    const LayoutState& of_d = state_of<LayoutState>(d_layout);
    const at::Tensor x =
        turned(matrices(state_of<LayoutState>(a_layout), a), static_cast<cublasOperation_t>(state.op_a));
    const at::Tensor y =
        turned(matrices(state_of<LayoutState>(b_layout), b), static_cast<cublasOperation_t>(state.op_b));
    const at::Tensor out = matrices(of_d, d);
    expect(x.size(0) == out.size(0) && y.size(0) == out.size(0) && x.size(2) == y.size(1) &&
           x.size(1) == out.size(1) && y.size(2) == out.size(2));
    const auto mode = static_cast<cublasPointerMode_t>(state.pointer_mode);
    const at::Scalar factor = scalar(mode, alpha, state.scale), kept = scalar(mode, beta, state.scale);
    const bool has_addend = kept.toDouble() != 0;
    const at::Tensor addend = has_addend ? matrices(state_of<LayoutState>(c_layout), c) : at::Tensor();
    expect(!has_addend || addend.sizes() == out.sizes());
    const Epilogue epilogue(state, out, of_d.type);
    if (out.numel() == 0) return;
    const bool is_plain = state.epilogue == CUBLASLT_EPILOGUE_DEFAULT && state.a_scale == nullptr &&
                          state.b_scale == nullptr && state.c_scale == nullptr && state.d_scale == nullptr &&
                          state.d_largest == nullptr && !is_float8(of_d.type) &&
                          !is_float8(state_of<LayoutState>(a_layout).type);
    if (is_plain) {
      if (has_addend && c != d) out.copy_(addend);
      return multiply(x, y, out, factor, kept, state.scale);
    }
    const at::ScalarType wide = state.scale == CUDA_R_64F ? at::kDouble : at::kFloat;
    const at::Tensor left = scaled(x.to(wide), state.a_scale), right = scaled(y.to(wide), state.b_scale);
    at::Tensor sums = at::bmm(left, right).mul(factor);
    if (has_addend) sums = sums.add(scaled(addend.to(wide), state.c_scale), kept);
    sums = epilogue.of(sums, x, y);
    if (state.d_largest != nullptr) view(state.d_largest, CUDA_R_32F, {}, {}).copy_(sums.abs().max());
    out.copy_(scaled(sums, state.d_scale));
  });
}
