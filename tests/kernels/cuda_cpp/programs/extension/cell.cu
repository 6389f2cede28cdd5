// A recurrent cell in the shape of PyTorch's tutorial: accessors, a dispatch over dtypes, templates, streams.
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/extension.h>

#include <vector>

namespace {

template <typename scalar_t>
__device__ __forceinline__ scalar_t sigmoid(scalar_t z) {
  return 1.0 / (1.0 + exp(-z));
}
template <typename scalar_t>
__device__ __forceinline__ scalar_t elu(scalar_t z) {
  return fmax(0.0, z) + fmin(0.0, exp(z) - 1.0);
}

template <typename T, int N>
using View = torch::PackedTensorAccessor32<T, N, torch::RestrictPtrTraits>;

template <typename scalar_t>
__global__ void cell_forward(const View<scalar_t, 3> gates, const View<scalar_t, 2> old_cell,
                             View<scalar_t, 2> new_h, View<scalar_t, 2> new_cell) {
  const int n = blockIdx.y, c = blockIdx.x * blockDim.x + threadIdx.x;
  if (c >= gates.size(2)) return;
  new_cell[n][c] = old_cell[n][c] + sigmoid(gates[n][0][c]) * elu(gates[n][2][c]);
  new_h[n][c] = tanh(new_cell[n][c]) * sigmoid(gates[n][1][c]);
}

template <typename scalar_t>
__global__ void cell_backward(const View<scalar_t, 2> grad_h, const View<scalar_t, 2> grad_cell,
                              const View<scalar_t, 3> gates, const View<scalar_t, 2> new_cell,
                              View<scalar_t, 3> grad_gates, View<scalar_t, 2> grad_old_cell) {
  const int n = blockIdx.y, c = blockIdx.x * blockDim.x + threadIdx.x;
  if (c >= gates.size(2)) return;
  const scalar_t in = sigmoid(gates[n][0][c]), out = sigmoid(gates[n][1][c]), candidate = elu(gates[n][2][c]);
  const scalar_t t = tanh(new_cell[n][c]);
  const scalar_t d_cell = out * grad_h[n][c] * (1 - t * t) + grad_cell[n][c];
  grad_old_cell[n][c] = d_cell;
  grad_gates[n][0][c] = candidate * d_cell * in * (1 - in);
  grad_gates[n][1][c] = t * grad_h[n][c] * out * (1 - out);
  grad_gates[n][2][c] = in * d_cell * (gates[n][2][c] > 0 ? scalar_t(1) : exp(gates[n][2][c]));
}

}  // namespace

std::vector<torch::Tensor> forward(torch::Tensor gates, torch::Tensor old_cell) {
  TORCH_CHECK(gates.device().is_cuda(), "gates must be a CUDA tensor");
  const c10::cuda::CUDAGuard guard(gates.device());
  auto new_h = torch::empty_like(old_cell), new_cell = torch::empty_like(old_cell);
  const int threads = 64;
  const dim3 blocks((gates.size(2) + threads - 1) / threads, gates.size(0));
  AT_DISPATCH_FLOATING_TYPES(gates.scalar_type(), "cell_forward", ([&] {
    cell_forward<scalar_t><<<blocks, threads, 0, at::cuda::getCurrentCUDAStream()>>>(
        gates.packed_accessor32<scalar_t, 3, torch::RestrictPtrTraits>(),
        old_cell.packed_accessor32<scalar_t, 2, torch::RestrictPtrTraits>(),
        new_h.packed_accessor32<scalar_t, 2, torch::RestrictPtrTraits>(),
        new_cell.packed_accessor32<scalar_t, 2, torch::RestrictPtrTraits>());
  }));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return {new_h, new_cell};
}

std::vector<torch::Tensor> backward(torch::Tensor grad_h, torch::Tensor grad_cell, torch::Tensor gates,
                                    torch::Tensor new_cell) {
  auto grad_gates = torch::empty_like(gates), grad_old_cell = torch::empty_like(grad_cell);
  const int threads = 64;
  const dim3 blocks((gates.size(2) + threads - 1) / threads, gates.size(0));
  AT_DISPATCH_FLOATING_TYPES(gates.scalar_type(), "cell_backward", ([&] {
    cell_backward<scalar_t><<<blocks, threads>>>(
        grad_h.packed_accessor32<scalar_t, 2, torch::RestrictPtrTraits>(),
        grad_cell.packed_accessor32<scalar_t, 2, torch::RestrictPtrTraits>(),
        gates.packed_accessor32<scalar_t, 3, torch::RestrictPtrTraits>(),
        new_cell.packed_accessor32<scalar_t, 2, torch::RestrictPtrTraits>(),
        grad_gates.packed_accessor32<scalar_t, 3, torch::RestrictPtrTraits>(),
        grad_old_cell.packed_accessor32<scalar_t, 2, torch::RestrictPtrTraits>());
  }));
  return {grad_gates, grad_old_cell};
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("forward", &forward);
  m.def("backward", &backward);
}
