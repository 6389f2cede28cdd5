// Memory of the host that lies in files: the system writes its pages out when memory is short.
#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>
#include <string>

namespace loom::glue::host_files {

// Smaller memory is the allocator's: a file takes whole pages.
constexpr size_t kLeastBytes = 4096;

// Whether what is made from now on, by any thread, is to lie in files of a folder that exists.
void open_folder(std::string folder);
void close_folder();
bool is_open();

// The contents are zeros, and their room on the disk is taken. The file goes with the memory. Throws where
// the file system has no such room.
c10::DataPtr allocate(size_t bytes);

// Removes the names of all files, and returns how many there were. Memory that is still in use stays until it
// is freed.
size_t remove_names();

}  // namespace loom::glue::host_files
