// Products by nvcuda::wmma: each warp makes one tile of the result.
#include <mma.h>

using namespace nvcuda;

template <typename T>
using Memory = typename wmma::fragment<wmma::matrix_a, 16, 16, 16, T, wmma::row_major>::storage_element_type;

// D = A B^T + C, with A of 32 x k and B of 32 x k by rows.
template <typename T, typename D, int m, int n, int step>
__global__ void multiply(const Memory<T>* a, const Memory<T>* b, const D* c, D* d, int k) {
  const int warp = threadIdx.x / 32, row = warp / (32 / n) * m, column = warp % (32 / n) * n;
  wmma::fragment<wmma::matrix_a, m, n, step, T, wmma::row_major> left;
  wmma::fragment<wmma::matrix_b, m, n, step, T, wmma::col_major> right;
  wmma::fragment<wmma::accumulator, m, n, step, D> sum, first;
  wmma::fill_fragment(sum, D(0.0f));
  for (int i = 0; i < k; i += step) {
    wmma::load_matrix_sync(left, a + row * k + i, k);
    wmma::load_matrix_sync(right, b + column * k + i, k);
    wmma::mma_sync(sum, left, right, sum);
  }
  wmma::load_matrix_sync(first, c + row * 32 + column, 32, wmma::mem_row_major);
  for (int i = 0; i < sum.num_elements; ++i) sum.x[i] = sum.x[i] + first.x[i];
  wmma::store_matrix_sync(d + row * 32 + column, sum, 32, wmma::mem_row_major);
}
