// The state of a graph's pool, kept and put back: what trees of graphs do between paths, by the names that
// torch._C has for it in CUDA builds.
#include <c10/core/StorageImpl.h>
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "runtime/worlds.h"
#include "torch/bindings/bindings.h"
#include "torch/bindings/guarded.h"
#include "torch/bindings/memory_bindings.h"
#include "torch/core/device.h"
#include "torch/core/device_memory.h"

namespace py = pybind11;

namespace loom::glue {

namespace {

using runtime::PoolCheckpoint;

// As the allocator knows it.
uintptr_t block_address(const void* address) {
  const runtime::Place place = runtime::locate(address);
  return reinterpret_cast<uintptr_t>(place.device == nullptr ? address : place.device_address);
}

runtime::CachingAllocator& pool_allocator(int64_t index) {
  check_device_index(index);
  return *devices().device(static_cast<int>(index)).allocator;
}

// By the addresses of storages, each once.
std::vector<c10::StorageImpl*> storages_at(const std::vector<uintptr_t>& addresses) {
  std::vector<c10::StorageImpl*> storages;
  std::unordered_set<uintptr_t> seen;
  for (const uintptr_t address : addresses) {
    if (seen.insert(address).second) storages.push_back(reinterpret_cast<c10::StorageImpl*>(address));
  }
  return storages;
}

bool owns_memory(const c10::StorageImpl& storage) {
  return storage.data_ptr().get_deleter() == &free_device_memory;
}

using Blocks = std::map<uintptr_t, size_t>;  // addresses and bytes

Blocks blocks_of(const PoolCheckpoint& checkpoint) {
  Blocks blocks;
  for (const PoolCheckpoint::SegmentState& segment : checkpoint.segments) {
    for (const PoolCheckpoint::Part& part : segment.parts) blocks.emplace(part.address, part.bytes);
  }
  return blocks;
}

// Blocks that are in use now and were not then lose their memory: their storages must be known, so that they
// free nothing when they die. Checked before anything changes.
void check_stale(const Blocks& kept, const Blocks& in_use, const std::vector<c10::StorageImpl*>& stale) {
  Blocks gone;
  std::set_difference(in_use.begin(), in_use.end(), kept.begin(), kept.end(),
                      std::inserter(gone, gone.end()));
  for (const c10::StorageImpl* storage : stale) {
    const uintptr_t address = block_address(storage->data_ptr().get());
    TORCH_CHECK(in_use.count(address) != 0 && owns_memory(*storage),
                "a storage was passed as stale whose memory is not the pool's, or is not its own");
    gone.erase(address);
  }
  TORCH_CHECK(gone.empty(),
              "Any stale tensors which are being manually freed must be passed to set checkpoint");
}

// `stale`: storages of blocks that are in use now and were not then. `owners`: storages made over memory that
// was in use then, which are to free it. Other memory that is in use again is raw_delete()'s.
void restore_pool(int64_t index, const PoolCheckpoint& checkpoint, const std::vector<uintptr_t>& stale,
                  const std::vector<uintptr_t>& owners) {
  runtime::CachingAllocator& allocator = pool_allocator(index);
  const std::vector<c10::StorageImpl*> stale_storages = storages_at(stale);
  const Blocks kept = blocks_of(checkpoint);
  const Blocks before = translated([&] { return allocator.blocks_in_use(checkpoint.id); });
  check_stale(kept, before, stale_storages);
  std::set<uintptr_t> given_up;
  for (const c10::StorageImpl* storage : stale_storages) {
    given_up.insert(block_address(storage->data_ptr().get()));
  }
  std::unordered_map<uintptr_t, c10::StorageImpl*> owner_of;
  for (c10::StorageImpl* storage : storages_at(owners)) {
    TORCH_CHECK(storage->data_ptr().get_context() == nullptr,
                "a storage that is to own memory of the pool owns memory already");
    const uintptr_t address = block_address(storage->data_ptr().get());
    TORCH_CHECK(kept.count(address) != 0,
                "a storage that is to own memory of the pool is not where a block of the kept state starts");
    owner_of[address] = storage;
  }
  const runtime::PoolRestored changed = translated([&] { return allocator.restore(checkpoint); });
  for (c10::StorageImpl* storage : stale_storages) {
    // A storage that does not own its memory has another deleter, and keeps it.
    static_cast<void>(storage->_mutable_data_ptr_no_checks().compare_exchange_deleter(
        &free_device_memory, &c10::detail::deleteNothing));
  }
  const c10::Device device(device_type(), static_cast<c10::DeviceIndex>(index));
  for (const uintptr_t address : changed.allocated) {
    void* const block = reinterpret_cast<void*>(address);
    if (const auto owner = owner_of.find(address); owner != owner_of.end()) {
      owner->second->set_data_ptr_noswap({block, block, &free_device_memory, device});
    } else if (before.count(address) == 0 || given_up.count(address) != 0) {
      note_raw_memory(block);  // it would leak otherwise
    }
  }
}

bool has_exactly(int64_t index, runtime::PoolId pool, const std::set<uintptr_t>& expected) {
  std::set<uintptr_t> wanted, found;
  for (const uintptr_t address : expected) {
    wanted.insert(block_address(reinterpret_cast<const void*>(address)));
  }
  for (const auto& [address, bytes] : translated([&] { return pool_allocator(index).blocks_in_use(pool); })) {
    found.insert(address);
  }
  return found == wanted;
}

}  // namespace

void bind_checkpoints(py::module_& m) {
  py::class_<PoolCheckpoint, std::shared_ptr<PoolCheckpoint>>(m, "PoolCheckpoint");
  m.def("pool_checkpoint", guarded([](int64_t index, runtime::PoolId pool) {
          return std::make_shared<PoolCheckpoint>(
              translated([&] { return pool_allocator(index).checkpoint(pool); }));
        }));
  m.def("restore_pool", guarded(restore_pool), py::arg("index"), py::arg("checkpoint"), py::arg("stale"),
        py::arg("owners") = std::vector<uintptr_t>{});
  m.def("pool_has_exactly", guarded(has_exactly));
  m.def("owns_device_memory", guarded([](uintptr_t storage) {
          return owns_memory(*reinterpret_cast<const c10::StorageImpl*>(storage));
        }));
}

}  // namespace loom::glue
