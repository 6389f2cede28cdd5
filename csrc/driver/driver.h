// What a chip must offer. A driver is written against this file alone; it includes no PyTorch header.
//
// Every method may be called from any thread. Failures are thrown as the classes of error.h; a driver never
// aborts. A null stream, event or address is refused with InvalidArgument where nothing else is said. "In
// stream order" means: after everything submitted to that stream before, before everything submitted later.
//
// A kernel is called on a thread of the host, with its stream. It computes there, or enqueues its work to the
// stream by the engine's own means: it has finished when it has returned and what it enqueued is done. So the
// contract fits host threads, where a stream may queue the call itself, and accelerators, where the call
// enqueues and the device runs late.
//
// What a kernel throws in the thread that submits it leaves submit(): nothing has happened to the device.
// Work that fails later leaves a failure, which the driver keeps, and what depends on it is dropped: what was
// submitted to that stream behind it, and to streams that wait for an event recorded behind it. The failure
// is raised, with its own type, by the first call that waits for what depends on it: synchronize_stream(),
// synchronize_event(), an in-place kernel, a copy of pageable memory. Then Info::sticky_failures decides:
//   false  the failure is over; what is submitted from then on runs.
//   true   as on a card whose errors stay, nothing runs any more, on any stream: what is submitted before the
//          failure is raised is dropped, and afterwards each call that submits work or waits for it throws
//          Unusable, until the process ends. Memory, queries, and the ends of streams and events go on, so
//          that the program can let go of what it holds.
// A driver passes on what ends its own thread (abi::__forced_unwind): that is no failure.
//
// What a driver needs of the program stands in Program, which it is given at its creation: the clock, and the
// check by which a wait ends early.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "driver/activity.h"
#include "driver/error.h"

namespace loom::driver {

// What a driver is and can do. Where a capability is false, what the program asks for is still accepted
// unless the comment says otherwise.
struct Info {
  std::string name;
  // The PyTorch device type whose kernels do the arithmetic, by its name ("cpu", "meta", "cuda"): lent memory
  // is wrapped as that device's tensors. Where the engine has streams of its own, a Stream is the handle that
  // the engine knows it by (for "cuda" a cudaStream_t).
  std::string engine;
  int device_count;  // physical devices, 0 or more
  // false: submit() releases kernels and runs none, copies and fills move nothing, and contents of memory are
  // undefined.
  bool executes_kernels;
  // true: a kernel that cannot run now is queued, and a thread of the driver's calls it later. false:
  // submit() calls it before it returns, as where all that a kernel does is enqueue.
  bool queues_kernels;
  bool sticky_failures;   // see above
  bool host_addressable;  // the host can dereference what allocate() returned
  // Kernels reach memory where allocate() said: Address::engine_address is always the address itself.
  bool unified_addresses;
  bool peer_access;        // copies between devices need no staging on the host
  bool shared_memory;      // false: share() and map_shared() throw NotSupported
  bool memory_rooms;       // false: allocate() refuses a Place that is not empty with NotSupported
  bool stream_priorities;  // false: StreamOptions::priority changes nothing
  bool stream_activity;    // false: StreamOptions::activity is never written
  // true: large memory is the host's once it is written, which may then have none left.
  bool commits_late = false;
};

struct MemoryInfo {
  int64_t free_bytes, total_bytes;
};

enum class AddressKind { kUnknown, kDevice, kPinnedHost };

// What the program offers to its drivers, for as long as the process lives; called from any thread. A driver
// in a library of its own reaches nothing else of the program.
struct Program {
  // The program's one clock, in nanoseconds, which never goes back: an event's time is a reading of it, taken
  // when the stream reaches the event. A simulated clock takes the place of the host's here, also while the
  // driver lives, so a driver does not time with another one.
  int64_t (*now_ns)() noexcept;
  // The same clock in ticks: what StreamActivity takes.
  uint64_t (*ticks)() noexcept;
  // Throws where the program wants a wait of this thread to end (Ctrl-C), and otherwise returns soon. Called
  // without a lock that any method of the driver takes, since it may run code of the program's.
  void (*check_wait)();
};

// What is known of an address; every access to device memory goes through this. Device memory has two: the
// program's, which is what allocate() returned and may be beyond the host's reach, and the engine's, where
// kernels find the same bytes. One plus an offset is the other plus that offset, for as long as allocated
// addresses go on. Of what is not device memory both are the address asked about.
struct Address {
  AddressKind kind;
  int device;            // -1 unless kind is kDevice
  void* device_address;  // the program's
  void* engine_address;  // means something within an allocation only
};

// What another process needs to map shared memory: plain bytes that mean something to the driver alone,
// unused ones 0. As large as the largest such handle of a vendor.
using ShareHandle = std::array<unsigned char, 64>;

// Device memory that other processes can map.
struct SharedMemory {
  ShareHandle handle;  // the same for as long as the memory is allocated, another's never
  size_t bytes;        // of all that a receiver maps
  size_t offset;       // where in it the address asked about lies
  size_t reach;        // bytes from there on that this process has in one piece
};

// Where allocate() puts memory; empty: anywhere. A room is a range of addresses in which memory comes and
// goes in place, as a vendor's virtual memory offers it.
struct Place {
  size_t room_bytes = 0;  // not 0: at the start of a new room of so many bytes
  void* at = nullptr;     // not null: at this address of a room
  bool is_used = true;    // false: taken for good and never touched, as what a context occupies
};

struct StreamOptions {
  int priority = 0;  // lower is more urgent, as in CUDA; 0 is the default
  // With nothing pending, a submitted kernel is called in the caller's thread before submit() returns. All
  // else, and everything where this is false, is queued if Info::queues_kernels.
  bool inline_when_idle = true;
  // Where the stream notes when it runs kernels and copies, from its first command to its end; it outlives
  // the stream. Null: activity is not recorded.
  StreamActivity* activity = nullptr;
};

struct EventOptions {
  bool timing = true;  // false: elapsed_ns() of it is refused
};

enum class OnFailure { kRaise, kKeep };

// Handles. What they point to is each driver's own affair.
using Stream = struct StreamHandle*;
using Event = struct EventHandle*;

// A unit of work. `run` is called with `context` and the stream it was submitted to, once. `release` is
// called exactly once: after `run` has returned or thrown, or when the kernel is dropped or refused. It does
// not throw, and may be null when `context` outlives the kernel's stay on the stream. `name` lives until
// then. `in_place`: `run` is called in the caller's thread before submit() returns, in stream order; a kept
// failure of the stream is raised instead.
struct Kernel {
  const char* name;
  void (*run)(void* context, Stream stream);
  void (*release)(void* context);
  void* context;
  bool in_place = false;
};

class Driver {
 public:
  virtual ~Driver() = default;

  // Constant over the life of the driver. Never throws, touches no device.
  virtual const Info& info() const noexcept = 0;

  // --- memory ---

  // Takes `bytes` of device memory, aligned to 2 MiB, contents undefined. Does not wait for streams.
  // Throws InvalidArgument for zero bytes, and for a device outside 0 … device_count − 1, as do all methods
  // below. Throws OutOfMemory, with all its numbers, when `bytes`, rounded up to the driver's granularity,
  // are more than are free; nothing changes then. Holes between allocations cost no memory.
  // A room keeps its addresses until all memory in it was given back. Throws InvalidArgument for memory that
  // does not fit into its room, starts at no multiple of 2 MiB, or overlaps memory that is there.
  virtual void* allocate(int device, size_t bytes, Place place = {}) = 0;
  // Host memory that copies can reach without staging, aligned to 64 bytes. Throws InvalidArgument for zero
  // bytes, OutOfMemory when the host has no more.
  virtual void* allocate_host(size_t bytes) = 0;
  // Gives back what allocate(), allocate_host() or map_shared() returned, at once: the caller has waited for
  // all work that uses it. Throws InvalidArgument for any other address; null is a no-op. Of memory in a room
  // it gives back the `bytes` at `address`, multiples of 2 MiB wherever they lie in it; of other memory all,
  // and `bytes` is 0.
  virtual void deallocate(void* address, size_t bytes = 0) = 0;
  // Free and total bytes; what was allocated counts as rounded up to the driver's granularity.
  virtual MemoryInfo memory_info(int device) const = 0;
  // Where an address lies, interior addresses included. All of a device's address range counts as that
  // device's, allocated or not. The engine's address of allocated memory is found as well as the program's.
  // Waits for no stream, never throws.
  virtual Address locate(const void* address) const noexcept = 0;
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
  // NotSupported where Info::shared_memory is false; SharingError when the host refuses, and the memory is as
  // it was.
  virtual SharedMemory share(int device, const void* address) = 0;
  // Maps such memory of another process, all `bytes` of it, into the device's address range. The process that
  // shares it must live, and keep it allocated, until this returns. It costs no device memory: the process
  // that shares it pays. Throws SharingError for a handle that names no shared memory of this size any more,
  // NotSupported as share() does.
  virtual void* map_shared(int device, const ShareHandle& handle, size_t bytes) = 0;

  // --- streams ---

  // A queue on one device; the caller owns it. Work of different streams is not ordered unless events order
  // it. Starts no thread.
  virtual Stream create_stream(int device, StreamOptions options) = 0;
  // Waits for what is pending, then ends the stream. A kept failure that no call has raised is discarded.
  // Null is a no-op.
  virtual void destroy_stream(Stream stream) = 0;
  // True when everything submitted has finished. Does not block and reports no failure.
  virtual bool query_stream(Stream stream) = 0;
  // Blocks until everything submitted so far has finished or was dropped. Under kRaise it raises a kept
  // failure that this depends on; under kKeep the failure stays kept. While it blocks, the caller's thread
  // calls Program::check_wait() ten times a second or more; what that throws ends the wait and leaves this,
  // and the work goes on.
  virtual void synchronize_stream(Stream stream, OnFailure on_failure = OnFailure::kRaise) = 0;
  // True when a kernel submitted now would be called in the caller's thread before submit() returns.
  virtual bool runs_in_place(Stream stream) noexcept = 0;

  // --- work ---

  // Runs a kernel in stream order. What a kernel submits to its own stream, in its own thread, is part of it.
  // An exception of a kernel that ran in the caller's thread leaves submit() itself; one on a worker is kept
  // by the stream. What is queued behind it on that stream, or waits for an event recorded behind it, is
  // dropped; other streams go on, unless failures are sticky. Once a kept failure was raised, what is
  // submitted runs again, or is refused with Unusable where failures are sticky. Blocks only where very many
  // commands are queued.
  virtual void submit(Stream stream, const Kernel& kernel) = 0;
  // Copies bytes in stream order; either side is device, pinned or pageable memory. Pageable memory is read
  // or written before copy() returns, and a kept failure of the stream is raised instead. Zero bytes is a
  // no-op; overlapping ranges behave like memmove.
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
  // Blocks until the version recorded last has finished; raises a kept failure that it depends on. It calls
  // Program::check_wait() as synchronize_stream() does.
  virtual void synchronize_event(Event event) = 0;
  // Nanoseconds between two finished timing events; negative when `end` came first. They are those of
  // Program::now_ns().
  // Throws InvalidArgument for an event without timing or never recorded, NotReady for an unfinished one and
  // for one recorded behind a failure.
  virtual int64_t elapsed_ns(Event start, Event end) = 0;
};

// --- making one ---

enum class Launch {
  kAuto,      // as StreamOptions say
  kBlocking,  // every kernel, copy and fill is in place: failures leave the call that caused them
  // No workers: everything is queued, and run by the threads that submit, ask or wait, in an order drawn from
  // chaos_seed among all that the recorded waits allow. With one host thread the same seed is the same order.
  kChaos,
};

// What the program asks for. A driver throws NotSupported, in a sentence, for a launch mode or a fence that
// it has not. A driver over hardware has the devices and the memory that are there.
struct DriverConfig {
  int device_count;      // it has at least so many, or throws InvalidArgument
  int64_t memory_bytes;  // per device
  Launch launch = Launch::kAuto;
  uint64_t chaos_seed = 0;
  bool protect = false;  // fences device memory off: a host access through allocate()'s addresses faults
  std::vector<int64_t>
      device_memory_bytes{};         // of each device, in the place of memory_bytes; empty: all alike
  const Program* program = nullptr;  // a library is never given null

  int64_t memory_bytes_of(int device) const {
    return device_memory_bytes.empty() ? memory_bytes : device_memory_bytes[static_cast<size_t>(device)];
  }
};

// A driver in a library of its own, which a program loads by naming the library's path in place of a driver's
// name. It is compiled against this header, which stands in the folder torch_loom.include_path(), with the
// same C++ standard library, and one of its files says
// LOOM_DRIVER_LIBRARY(create), with a function
//   Driver* create(const DriverConfig& config);
// whose result the caller deletes. The library is never unloaded.
struct DriverLibrary {
  uint32_t contract;  // the version that it was compiled against
  Driver* (*create)(const DriverConfig& config);
};

// Another number whenever something above changes.
constexpr uint32_t kContractVersion = 3;

#define LOOM_DRIVER_LIBRARY(create)                                                                  \
  extern "C" __attribute__((visibility("default"))) const ::loom::driver::DriverLibrary loom_driver; \
  const ::loom::driver::DriverLibrary loom_driver { ::loom::driver::kContractVersion, &(create) }

}  // namespace loom::driver
