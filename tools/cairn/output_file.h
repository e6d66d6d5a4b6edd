// Files that are there whole or not at all.
#ifndef CAIRN_TOOLS_OUTPUT_FILE_H_
#define CAIRN_TOOLS_OUTPUT_FILE_H_

#include <string>
#include <string_view>

namespace cairn::tool {

// Writes beside `path` and renames; a file that was there stays as it was if anything fails. A path that is no
// regular file (a device, a pipe) is written to directly. Throws std::runtime_error with path and cause.
void write_file_atomically(const std::string& path, std::string_view content);

// To standard output, flushed. Throws std::runtime_error with the cause.
void write_to_stdout(std::string_view content);

}  // namespace cairn::tool

#endif  // CAIRN_TOOLS_OUTPUT_FILE_H_
