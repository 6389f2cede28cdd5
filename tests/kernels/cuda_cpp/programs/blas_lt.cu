// Products by cuBLASLt, on memory of the host: null where all went well, else what did not.
#include <cublasLt.h>
#include <cuda_runtime.h>

#include <cstdio>
#include <map>
#include <string>
#include <vector>

static std::string failure;
static bool holds(bool condition, const char* what) {
  if (!condition && failure.empty()) failure = what;
  return condition;
}
#define HOLDS(condition) holds(condition, #condition)
#define OK(call) holds((call) == 0, #call)

struct Buffer {
  void* memory = nullptr;
  void* host;
  size_t bytes;
  Buffer(void* host, size_t bytes) : host(host), bytes(bytes) {
    if (host == nullptr) return;
    OK(cudaMalloc(&memory, bytes));
    OK(cudaMemcpy(memory, host, bytes, cudaMemcpyHostToDevice));
  }
  ~Buffer() {
    if (host == nullptr) return;
    OK(cudaMemcpy(host, memory, bytes, cudaMemcpyDeviceToHost));
    OK(cudaFree(memory));
  }
};

static size_t size_of(int type) { return type == CUDA_R_32F ? 4 : type == CUDA_R_16BF ? 2 : 1; }

// D of m x n = epilogue(2 op(A) op(B) + beta C), stored by columns or by rows.
extern "C" const char* product(int type, int out_type, int m, int n, int k, int batches, bool turns_a, bool by_rows,
                               unsigned epilogue, float beta, void* a, void* b, void* c, void* d, void* bias,
                               int bias_count, void* aux, size_t aux_bytes, long long aux_leading, float* scale) {
  failure.clear();
  cublasLtHandle_t handle = nullptr;
  OK(cublasLtCreate(&handle));
  const size_t in = size_of(type), out = size_of(out_type);
  {
    Buffer on_a(a, in * m * k * batches), on_b(b, in * k * n * batches), on_c(c, out * m * n * batches);
    Buffer on_d(d, out * m * n * batches), on_bias(bias, 4 * bias_count), on_aux(aux, aux_bytes);
    Buffer on_scale(scale, sizeof(float));
    cublasLtMatmulDescOpaque_t desc;
    OK(cublasLtMatmulDescInit(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    const cublasOperation_t turned = turns_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    OK(cublasLtMatmulDescSetAttribute(&desc, CUBLASLT_MATMUL_DESC_TRANSA, &turned, sizeof turned));
    OK(cublasLtMatmulDescSetAttribute(&desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
    HOLDS(cublasLtMatmulDescSetAttribute(&desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, 1) ==
          CUBLAS_STATUS_INVALID_VALUE);
    if (bias != nullptr) {
      const int32_t of_bias = CUDA_R_32F;
      OK(cublasLtMatmulDescSetAttribute(&desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &on_bias.memory, sizeof(void*)));
      OK(cublasLtMatmulDescSetAttribute(&desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &of_bias, sizeof of_bias));
    }
    if (aux != nullptr) {
      const int64_t leading = aux_leading;
      OK(cublasLtMatmulDescSetAttribute(&desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &on_aux.memory,
                                        sizeof(void*)));
      OK(cublasLtMatmulDescSetAttribute(&desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &leading, sizeof leading));
    }
    if (scale != nullptr)
      OK(cublasLtMatmulDescSetAttribute(&desc, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &on_scale.memory,
                                        sizeof(void*)));
    const auto layout = [&](int of, int rows, int columns) {
      cublasLtMatrixLayout_t made = nullptr;
      OK(cublasLtMatrixLayoutCreate(&made, static_cast<cudaDataType>(of), rows, columns,
                                    by_rows ? columns : rows));
      const int32_t order = by_rows ? CUBLASLT_ORDER_ROW : CUBLASLT_ORDER_COL;
      OK(cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_ORDER, &order, sizeof order));
      const int32_t count = batches;
      const int64_t stride = static_cast<int64_t>(rows) * columns;
      OK(cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count));
      OK(cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride));
      return made;
    };
    const cublasLtMatrixLayout_t of_a = turns_a ? layout(type, k, m) : layout(type, m, k),
                                 of_b = layout(type, k, n), of_d = layout(out_type, m, n);
    cublasLtMatmulPreference_t preference = nullptr;
    OK(cublasLtMatmulPreferenceCreate(&preference));
    const size_t workspace = 1 << 20;
    OK(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                            sizeof workspace));
    cublasLtMatmulHeuristicResult_t result;
    int found = 0;
    OK(cublasLtMatmulAlgoGetHeuristic(handle, &desc, of_a, of_b, of_d, of_d, preference, 1, &result, &found));
    HOLDS(found == 1 && result.state == CUBLAS_STATUS_SUCCESS);
    const float alpha = 2;
    const void* const addend = c == nullptr ? on_d.memory : on_c.memory;
    OK(cublasLtMatmul(handle, &desc, &alpha, on_a.memory, of_a, on_b.memory, of_b, &beta, addend, of_d, on_d.memory,
                      of_d, &result.algo, nullptr, 0, nullptr));
    HOLDS(cublasLtMatmul(handle, &desc, &alpha, on_a.memory, of_a, on_a.memory, of_d, &beta, addend, of_d, on_d.memory,
                         of_a, nullptr, nullptr, 0, nullptr) == CUBLAS_STATUS_INVALID_VALUE ||
          m == k);
    for (const auto made : {of_a, of_b, of_d}) OK(cublasLtMatrixLayoutDestroy(made));
    OK(cublasLtMatmulPreferenceDestroy(preference));
  }
  OK(cublasLtDestroy(handle));
  return failure.empty() ? nullptr : failure.c_str();
}
