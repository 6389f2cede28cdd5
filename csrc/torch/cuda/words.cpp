#include "torch/cuda/words.h"

#include <regex>
#include <string_view>
#include <typeinfo>

#include "util/sorted_rows.h"

namespace loom::glue {

namespace {

struct Renamed {
  std::string_view host, cuda;
};

// Kernels whose names differ in more than their device, sorted by the host's.
constexpr Renamed kRenamed[] = {
    {"addcdiv_cpu_out", "addcdiv_cuda"},
    {"addcmul_cpu_out", "addcmul_cuda"},
    {"clamp_max_scalar_cpu", "clamp_scalar_cuda"},
    {"clamp_min_scalar_cpu", "clamp_scalar_cuda"},
    {"cumprod_out_cpu", "cumprod_cuda"},
    {"cumsum_out_cpu", "cumsum_cuda"},
    {"div_cpu", "div_true_cuda"},
    {"eq_cpu", "compare_eq_ne_cuda"},
    {"equal_cpu", "compare_eq_ne_cuda"},
    {"ge_cpu", "compare_cuda"},
    {"grid_sampler3d_cpu", "grid_sampler_3d_cuda"},
    {"grid_sampler_2d_cpu_kernel_impl", "grid_sampler_2d_cuda"},
    {"gt_cpu", "compare_cuda"},
    {"le_cpu", "compare_cuda"},
    {"log_sigmoid_cpu", "log_sigmoid_forward_cuda"},
    {"logcumsumexp_out_cpu", "logcumsumexp_cuda"},
    {"lt_cpu", "compare_cuda"},
    {"maximum_cpu", "max_elementwise_cuda"},
    {"minimum_cpu", "min_elementwise_cuda"},
    {"mode_cpu", "cuda_mode"},
    {"ne_cpu", "compare_eq_ne_cuda"},
    {"nonzero_count_cpu", "nonzero_cuda"},
    {"prod_out_cpu", "prod_cuda"},
    {"scatter_gather_scalar_cpu", "cuda_scatter_gather_base_kernel_func"},
    {"scatter_gather_tensor_cpu", "cuda_scatter_gather_base_kernel_func"},
    {"scatter_gather_tensor_cpu_reduce_mean", "cuda_scatter_gather_base_kernel_func"},
    {"take_put_cpu", "put_cuda"},
};

void drop(std::string& name, std::string_view part) {
  if (const size_t place = name.find(part); place != name.npos) name.erase(place, part.size());
}

// A name that holds "_cpu".
std::string cuda_kernel(std::string name) {
  drop(name, "_reduced_float");  // a variant for operands of two dtypes, which CUDA has in the same kernel
  if (const Renamed* found = find_row(kRenamed, name, &Renamed::host)) return std::string(found->cuda);
  drop(name, "_vml");  // a library of the host's
  name.replace(name.find("_cpu"), 4, "_cuda");
  return name;
}

// Replaces each match of `pattern` by what `replaced` makes of it.
template <typename F>
std::string replace_each(const std::string& text, const std::regex& pattern, F replaced) {
  std::string result;
  auto rest = text.begin();
  for (std::sregex_iterator match(text.begin(), text.end(), pattern), end; match != end; ++match) {
    result.append(rest, text.begin() + match->position());
    result += replaced(*match);
    rest = text.begin() + match->position() + match->length();
  }
  return result.append(rest, text.end());
}

template <typename E>
void throw_if(const c10::Error& error, const std::string& text) {
  if (typeid(error) != typeid(E)) return;
  E reworded({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, text);
  for (const std::string& line : error.context()) reworded.add_context(line);
  throw reworded;
}

}  // namespace

std::string in_cuda_words(std::string text) {
  static const auto* const kernel = new std::regex(R"(\b\w+_cpu(?:_\w*|\b))");
  static const auto* const type = new std::regex(R"(\btorch\.((?:sparse\.)?[A-Z]\w*Tensor\b))");
  static const auto* const place = new std::regex(R"(\bCPU(\w+Type\b)|\bon CPU\b|\(CPU\))");
  text = replace_each(text, *kernel, [](const std::smatch& match) { return cuda_kernel(match.str()); });
  text = std::regex_replace(text, *type, "torch.cuda.$1");
  return replace_each(text, *place, [](const std::smatch& match) {
    if (match[1].matched) return "CUDA" + match[1].str();
    return std::string(match.str() == "(CPU)" ? "(CUDA)" : "on CUDA");
  });
}

void rethrow_in_cuda_words(const c10::Error& error) {
  const std::string text = in_cuda_words(error.msg());
  if (text == error.msg()) throw;
  throw_if<c10::Error>(error, text);
  throw_if<c10::IndexError>(error, text);
  throw_if<c10::ValueError>(error, text);
  throw_if<c10::TypeError>(error, text);
  throw_if<c10::NotImplementedError>(error, text);
  throw;
}

}  // namespace loom::glue
