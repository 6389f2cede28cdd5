/* Device memory of torch-loom for libraries written in C or C++, such as pluggable allocators.
 *
 * torch.loom.memory.PluggableAllocator makes these functions visible before it loads a library; a library is
 * compiled against this header (its folder: torch_loom.include_path()) and linked with nothing.
 */
#ifndef LOOM_MEMORY_H
#define LOOM_MEMORY_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LOOM_API __attribute__((visibility("default")))

/* A stream, as torch.loom.Stream.native_handle names it. */
typedef void* loom_stream_t;

/* Takes `bytes` of memory of a device, aligned to 2 MiB, contents undefined. Waits for nothing.
 * NULL when there is not as much, or no such device; loom_last_error() says why. */
LOOM_API void* loom_malloc(size_t bytes, int device);

/* Gives back what loom_malloc() returned, at once: the caller has waited for all work that uses it. A
 * pluggable allocator's free function is only called when that is so. Returns 0, or 1 when `address` is no
 * such memory; NULL is allowed and does nothing. */
LOOM_API int loom_free(void* address);

/* What the last call of this thread that failed has failed with. */
LOOM_API const char* loom_last_error(void);

#ifdef __cplusplus
}
#endif

#endif
