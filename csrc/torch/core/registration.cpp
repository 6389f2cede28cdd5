#include "torch/core/registration.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/TensorOptions.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace loom::glue {

namespace {

void choose_type(const std::string& name) {
  const bool is_cuda = name == "cuda";
  const c10::DeviceType type = is_cuda ? c10::DeviceType::CUDA : c10::DeviceType::PrivateUse1;
  TORCH_CHECK(detail::chosen.type == c10::DeviceType::CPU, "the device '", name,
              "' cannot be registered: this process has the device '",
              c10::DeviceTypeName(detail::chosen.type, /*lower_case=*/true), "' already");
  // A build for CUDA has a backend of its own for that type, which gives way (cuda/builtin_backend.h).
  TORCH_CHECK_VALUE(is_cuda || !c10::impl::hasDeviceGuardImpl(type), "the device '", name,
                    "' cannot be registered: another backend has taken PyTorch's device type for backends "
                    "outside of its tree");
  if (!is_cuda) c10::register_privateuse1_backend(name);
  const c10::DispatchKey dense = c10::computeDispatchKey(std::nullopt, std::nullopt, c10::Device(type));
  const c10::BackendComponent backend = c10::toBackendComponent(dense);
  detail::chosen = {type, backend, c10::DispatchKeySet(dense)};
}

// By Python's lock only one thread registers.
std::map<std::pair<c10::DispatchKey, std::string>, torch::Library>& libraries() {
  static auto* const all = new std::map<std::pair<c10::DispatchKey, std::string>, torch::Library>;
  return *all;
}

std::vector<c10::RegistrationHandleRAII>& kernels() {
  static auto* const all = new std::vector<c10::RegistrationHandleRAII>;
  return *all;
}

std::vector<Registration>& waiting() {
  static auto* const all = new std::vector<Registration>;
  return *all;
}

}  // namespace

c10::DispatchKey autocast_key() {
  return device_type() == c10::DeviceType::CUDA ? c10::DispatchKey::AutocastCUDA
                                                : c10::DispatchKey::AutocastPrivateUse1;
}

torch::Library& library(c10::DispatchKey key, const char* name_space) {
  const auto place = std::pair(key, std::string(name_space));
  const auto known = libraries().find(place);
  if (known != libraries().end()) return known->second;
  torch::Library made(torch::Library::IMPL, name_space, key, __FILE__, __LINE__);
  return libraries().emplace(place, std::move(made)).first->second;
}

void implement(const c10::OperatorName& op, c10::DispatchKey key, c10::KernelFunction kernel) {
  kernels().push_back(
      c10::Dispatcher::singleton().registerImpl(op, key, std::move(kernel), std::nullopt, nullptr, __FILE__));
}

void fall_back(c10::DispatchKey key, c10::KernelFunction kernel) {
  auto& dispatcher = c10::Dispatcher::singleton();
  if (dispatcher.hasBackendFallbackForDispatchKey(key)) return;  // the program's own stays
  kernels().push_back(dispatcher.registerFallback(key, std::move(kernel), __FILE__));
}

void at_first_use(Registration registration) { waiting().push_back(registration); }

void register_what_waits() {
  while (!waiting().empty()) {
    // One that fails is not tried again: what it has registered stays.
    const Registration registration = waiting().front();
    waiting().erase(waiting().begin());
    registration();
  }
}

void register_device(const std::string& name, c10::ArrayRef<Registration> registrations,
                     Registration put_back) {
  choose_type(name);
  try {
    for (const Registration registration : registrations) registration();
  } catch (...) {
    libraries().clear();
    kernels().clear();
    waiting().clear();
    put_back();
    throw;
  }
}

}  // namespace loom::glue
