// Device memory shared between processes: what this process has sent and received.
//
// A block that was sent is not reused while a message with its handle has not been received, or another
// process holds it. That a message was received stands in a ledger, a file of the sender's that receivers
// write to; they hold a lock on it at the block's address, which goes with them however they end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace loom::runtime::shared {

// Shares a live block of the caching allocator, after the device's streams have finished what they were
// given, and returns the handle for one receiver. Throws InvalidArgument when `address` starts no live block,
// SharingError for received memory and when the host refuses.
std::string send(void* address, size_t bytes);

struct Received {
  void* address;
  size_t bytes;
  int device;   // logical
  bool is_own;  // sent by this process: the block is in use as before, or again
};
// What a handle stands for; may be asked once per handle. For what other processes sent, each call is undone
// by a release(). Throws SharingError for handles that are damaged, late, or received already.
Received receive(const std::string& handle);

// True when nothing has been sent or received, ever: then there is nothing to ask below.
bool is_unused() noexcept;
bool is_received(const void* address) noexcept;
// Where the received block that has `address` begins, and the bytes of what was sent; {0, 0} if none has it.
std::pair<uintptr_t, size_t> received_around(const void* address) noexcept;

// A storage lets go of `address`. False: it is the caching allocator's, to be freed. True: it was received,
// and goes once the work on it has finished; or it was sent and others hold it, and is kept for them.
bool release(void* address);

// Frees, by `free`, what is kept for others and held by none any more, and unmaps what was received and is
// done with. True if it freed anything.
bool collect(void (*free)(void* address));

}  // namespace loom::runtime::shared
