// The yardstick: direct reads and writes through io_uring, with nothing around them.
#ifndef CAIRN_BENCH_TIER_PLAIN_DISK_H_
#define CAIRN_BENCH_TIER_PLAIN_DISK_H_

#include <liburing.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace cairn::bench {

// Throws std::runtime_error for whatever the kernel or the disk refuses.
class PlainDisk {
 public:
  // A file in `directory` of `bytes`, every one of them written, and gone from the directory at once.
  PlainDisk(const std::string& directory, std::size_t bytes, std::size_t depth);
  ~PlainDisk();
  PlainDisk(const PlainDisk&) = delete;
  PlainDisk& operator=(const PlainDisk&) = delete;

  // Whether the kernel lets this process use io_uring.
  [[nodiscard]] static bool available();

  // Memory aligned to 4 KiB, one piece after the other in the file, `depth` at a time.
  void write(std::span<const std::span<std::byte>> pieces, std::uint64_t offset) { transfer(pieces, offset, true); }
  void read(std::span<const std::span<std::byte>> pieces, std::uint64_t offset) { transfer(pieces, offset, false); }

 private:
  void transfer(std::span<const std::span<std::byte>> pieces, std::uint64_t offset, bool writes);

  const std::size_t depth_;
  io_uring ring_{};
  int file_ = -1;
};

}  // namespace cairn::bench

#endif  // CAIRN_BENCH_TIER_PLAIN_DISK_H_
