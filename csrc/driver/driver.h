// What a chip must offer. A driver is written against this file alone; it includes no PyTorch header.
//
// Every method may be called from any thread. Failures are thrown as the classes of error.h; a driver never
// aborts. A null stream, event or address is refused with InvalidArgument where nothing else is said. "In
// stream order" means: after everything submitted to that stream before, before everything submitted later.
//
// A kernel that does not run in its caller's thread may fail later. Its failure is kept, and what depends on
// it is dropped: what was submitted to that stream behind it, and to streams that wait for an event recorded
// behind it. It is raised once, with its own type, by the first call that waits for what depends on it:
// synchronize_stream(), synchronize_event(), an in-place kernel, a copy of pageable memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "driver/error.h"

namespace loom::driver {

// The PyTorch device type whose kernels do the arithmetic: lent memory is wrapped as that device's tensors.
enum class Engine { kCpu, kMeta };

struct Info {
  std::string name;
  Engine engine;
  bool executes_kernels;  // false: submit() runs nothing, and contents of memory are undefined
  bool host_addressable;  // true: the host can dereference what allocate() returned; kernels always can reach
                          // engine_address() of it
  // What this driver lacks of the contracts below, each as "method: reason".
  std::vector<std::string> lacks;
};

struct Properties {
  std::string name;
  int64_t total_memory_bytes;
  int major, minor;
  int num_cores;
  int64_t clock_rate_mhz;
};

struct Telemetry {
  double utilization_percent;         // share of the last second in which a kernel ran
  double memory_utilization_percent;  // share of the device memory that is allocated
  double power_watts;
  double temperature_celsius;
  int64_t clock_rate_mhz;
};

struct MemoryInfo {
  int64_t free_bytes, total_bytes;
};

enum class AddressKind { kUnknown, kDevice, kPinnedHost };

struct Address {
  AddressKind kind;
  int device;  // -1 unless kind is kDevice
  // What allocate() and its caller know the address as; differs from the address asked about only for what
  // engine_address() returned.
  const void* device_address;
};

// Device memory that other processes can map.
struct SharedMemory {
  int file;       // a descriptor; the driver closes it when the memory is given back
  size_t bytes;   // of the file
  size_t offset;  // where in it the address asked about lies
};

struct StreamOptions {
  int priority = 0;  // lower is more urgent, as in CUDA; 0 is the default
  // With nothing pending, a submitted command runs in the caller's thread before submit() returns. All else,
  // and everything where this is false, is queued to a worker.
  bool inline_when_idle = true;
};

struct EventOptions {
  bool timing = true;  // false: elapsed_ns() of it is refused
};

using Stream = struct StreamState*;
using Event = struct EventState*;

// A unit of work. `release` is called exactly once: after `run` has returned or thrown, or when the kernel is
// dropped or refused. It does not throw, and may be null when `context` outlives the kernel's stay on the
// stream. `name` lives until then. `in_place`: it runs in the caller's thread before submit() returns, after
// what is pending on the stream; a kept failure of the stream is raised instead.
struct Kernel {
  const char* name;
  void (*run)(void* context);
  void (*release)(void* context);
  void* context;
  bool in_place = false;
};

class Driver {
 public:
  virtual ~Driver() = default;

  // --- the chip ---

  // Constant over the life of the driver.
  virtual const Info& info() const noexcept = 0;
  // Number of physical devices, 0 or more. Never throws, touches no device.
  virtual int device_count() const noexcept = 0;
  // Throws InvalidArgument for a device outside 0 … device_count() − 1, as do all methods below.
  virtual Properties properties(int device) const = 0;
  // Figures at this moment. Does not wait for the device.
  virtual Telemetry telemetry(int device) const = 0;
  // True when a copy between the two needs no staging on the host. A device is not its own peer.
  virtual bool can_access_peer(int device, int peer) const = 0;

  // --- memory ---

  // Takes `bytes` of device memory, aligned to 2 MiB, contents undefined. Does not wait for streams.
  // Throws InvalidArgument for zero bytes. Throws OutOfMemory, with all its numbers, when `bytes`, rounded up
  // to the driver's granularity, are more than are free; nothing changes then. Holes between allocations cost
  // no memory.
  virtual void* allocate(int device, size_t bytes) = 0;
  // Gives back what allocate() or map_shared() returned, at once: the caller has waited for all work that
  // uses it. Throws InvalidArgument for any other address; null is a no-op.
  virtual void deallocate(int device, void* address) = 0;
  // Free and total bytes; what was allocated counts as rounded up to the driver's granularity.
  virtual MemoryInfo memory_info(int device) const = 0;
  // Where an address lies, interior addresses included. All of a device's address range counts as that
  // device's, allocated or not. Waits for no stream, never throws.
  virtual Address locate(const void* address) const noexcept = 0;
  // Where the engine's kernels reach what lies at a device address; the address itself unless host access is
  // fenced off, and for addresses that are not device memory. Fenced memory lies there as it does at the
  // device address: one plus an offset is the other plus that offset, within an allocation.
  virtual void* engine_address(const void* device_address) const noexcept = 0;
  // Host memory that copies can reach without staging, aligned to 64 bytes. Throws InvalidArgument for zero
  // bytes, OutOfMemory when the host has no more.
  virtual void* allocate_host(size_t bytes) = 0;
  // Gives back what allocate_host() returned. Throws InvalidArgument for any other address; null is a no-op.
  virtual void deallocate_host(void* address) = 0;
  // From now on a range of the host's memory, which its owner keeps, counts as memory of `device`, or as
  // pinned host memory where that is −1: locate() says so, and kernels and copies reach it. It takes none of
  // the device's memory. Throws InvalidArgument for zero bytes, null, addresses where the host has no memory,
  // and a range that overlaps a registered one or memory of this driver.
  virtual void register_memory(int device, void* address, size_t bytes) = 0;
  // Ends that: the caller has waited for all work that uses it. Throws InvalidArgument for an address at
  // which no registered range begins; null is a no-op.
  virtual void unregister_memory(void* address) = 0;

  // Makes the allocation around a device address memory that other processes can map, once; its addresses and
  // contents stay, whatever runs meanwhile. Who has mapped it keeps it when it is given back, or this process
  // ends. Throws InvalidArgument for an address in no allocation, and for memory that map_shared() returned;
  // NotSupported where memory has no contents; SharingError when the host refuses, and the memory is as it
  // was.
  virtual SharedMemory share(int device, const void* address) = 0;
  // Maps such memory of another process, all of the file, into the device's address range; it is a descriptor
  // of the caller's, and may be closed. It costs no device memory: the process that shares it pays. Throws
  // SharingError for a file that is no shared device memory, NotSupported as share() does.
  virtual void* map_shared(int device, int file) = 0;

  // --- streams ---

  // A queue on one device; the caller owns it. Work of different streams is not ordered unless events order
  // it. Starts no thread.
  virtual Stream create_stream(int device, StreamOptions options) = 0;
  // Waits for what is pending, then ends the stream. A kept failure that nobody waited for is discarded.
  // Null is a no-op.
  virtual void destroy_stream(Stream stream) = 0;
  // True when everything submitted has finished. Does not block and reports no failure.
  virtual bool query_stream(Stream stream) = 0;
  // Blocks until everything submitted so far has finished or was dropped; raises a kept failure that it
  // depends on.
  virtual void synchronize_stream(Stream stream) = 0;
  // Blocks until everything submitted so far has finished or was dropped; a kept failure stays kept.
  virtual void drain_stream(Stream stream) = 0;
  // True when a kernel submitted now would run in the caller's thread.
  virtual bool runs_in_place(Stream stream) noexcept = 0;

  // --- work ---

  // Runs a kernel in stream order. What a kernel submits to its own stream, in its own thread, is part of it.
  // An exception of a kernel that ran in the caller's thread leaves submit() itself; one on a worker is kept
  // by the stream. What is queued behind it on that stream, or waits for an event recorded behind it, is
  // dropped; other streams go on. Once a kept failure was raised, what is submitted runs again. Blocks only
  // where very many commands are queued.
  virtual void submit(Stream stream, const Kernel& kernel) = 0;
  // Copies bytes in stream order; either side is device, pinned or pageable memory. Pageable memory is read
  // or written before copy() returns, as by an in-place kernel. Zero bytes is a no-op; overlapping ranges
  // behave like memmove.
  virtual void copy(Stream stream, void* destination, const void* source, size_t bytes) = 0;
  // Sets every byte of a device range in stream order.
  virtual void fill(Stream stream, void* destination, uint8_t value, size_t bytes) = 0;

  // --- events ---

  // A new event counts as finished; the caller owns it.
  virtual Event create_event(EventOptions options) = 0;
  // May be called while the event is pending: what waits for it still does. Null is a no-op.
  virtual void destroy_event(Event event) = 0;
  // Marks the point reached by the stream. Recording again starts a new version; earlier waits keep theirs.
  // Does not block.
  virtual void record_event(Event event, Stream stream) = 0;
  // Later work of `stream` starts after the version recorded last at this moment. Does not block the caller.
  virtual void wait_event(Stream stream, Event event) = 0;
  // True when the version recorded last has finished, or none was recorded. Does not block and reports no
  // failure.
  virtual bool query_event(Event event) = 0;
  // Blocks until the version recorded last has finished; raises a kept failure that it depends on.
  virtual void synchronize_event(Event event) = 0;
  // Nanoseconds between two finished timing events; negative when `end` came first.
  // Throws InvalidArgument for an event without timing or never recorded, NotReady for an unfinished one and
  // for one recorded behind a failure.
  virtual int64_t elapsed_ns(Event start, Event end) = 0;
};

}  // namespace loom::driver
