// What the drivers without hardware share: memory from address spaces, pinned host memory, and streams of the
// host's threads (host_stream.h). A subclass says whether kernels and copies touch memory.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "driver/host/address_space.h"
#include "driver/host/chaos.h"
#include "driver/registry.h"

namespace loom::driver {

class HostDriver : public Driver {
 public:
  HostDriver(Info info, const DriverConfig& config);
  ~HostDriver() override;

  const Info& info() const noexcept override { return info_; }

  void* allocate(int device, size_t bytes, Place place) override;
  void* allocate_host(size_t bytes) override;
  void deallocate(void* address, size_t bytes) override;
  MemoryInfo memory_info(int device) const override;
  Address locate(const void* address) const noexcept override;
  void register_memory(int device, void* address, size_t bytes) override;
  void unregister_memory(void* address) override;
  SharedMemory share(int device, const void* address) override;
  void* map_shared(int device, const ShareHandle& handle, size_t bytes) override;

  Stream create_stream(int device, StreamOptions options) override;
  void destroy_stream(Stream stream) override;
  bool query_stream(Stream stream) override;
  void synchronize_stream(Stream stream, OnFailure on_failure) override;
  bool runs_in_place(Stream stream) noexcept override;

  void submit(Stream stream, const Kernel& kernel) override;
  void copy(Stream stream, void* destination, const void* source, size_t bytes) override;
  void fill(Stream stream, void* destination, uint8_t value, size_t bytes) override;

  Event create_event(EventOptions options) override;
  void destroy_event(Event event) override;
  void record_event(Event event, Stream stream) override;
  void wait_event(Stream stream, Event event) override;
  bool query_event(Event event) override;
  void synchronize_event(Event event) override;
  int64_t elapsed_ns(Event start, Event end) override;

  // Begins the order of Launch::kChaos again, as with this chaos_seed, while all streams are idle. Throws
  // NotSupported under other launch modes.
  void set_chaos_seed(uint64_t seed);

 private:
  // Host memory that is more than that: allocated here and pinned, or registered.
  struct HostRange {
    size_t bytes;
    int device;  // −1: pinned
    bool is_own;
  };

  AddressSpace& space(int device) const;
  void check_can_register(uintptr_t begin, size_t bytes) const;
  // Where the host reaches what lies at an address that a copy or a fill was given.
  void* touchable(const void* address) const noexcept {
    return info_.unified_addresses ? const_cast<void*>(address) : locate(address).engine_address;
  }
  bool is_pageable(const void* address) const noexcept;

  const Info info_;
  const Launch launch_;
  const int process_;                   // that made it: the workers are not in a forked child
  const std::unique_ptr<Chaos> chaos_;  // null unless launch_ is kChaos
  std::vector<std::unique_ptr<AddressSpace>> spaces_;
  std::mutex streams_mutex_;
  std::set<HostStream*> streams_;
  mutable std::mutex host_mutex_;
  std::map<uintptr_t, HostRange> host_ranges_;
  std::atomic<int64_t> num_host_ranges_{0};
};

}  // namespace loom::driver
