#include "bench/tier/plain_disk.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>

namespace cairn::bench {
namespace {

[[noreturn]] void refused(const std::string& what, int error) {
  throw std::runtime_error(what + ": " + std::strerror(error));
}

}  // namespace

PlainDisk::PlainDisk(const std::string& directory, std::size_t bytes, std::size_t depth) : depth_(depth) {
  std::string path = directory + "/plain_XXXXXX";
  file_ = ::mkostemp(path.data(), O_CLOEXEC | O_DIRECT);
  if (file_ < 0) refused(path + ": can't be made for direct I/O", errno);
  ::unlink(path.c_str());
  if (const int error = ::posix_fallocate(file_, 0, static_cast<off_t>(bytes)); error != 0) {
    ::close(file_);
    refused(path + ": no room", error);
  }
  if (const int error = io_uring_queue_init(static_cast<unsigned>(depth), &ring_, 0); error < 0) {
    ::close(file_);
    refused("io_uring", -error);
  }
  constexpr std::size_t kFillBytes = std::size_t{1} << 20;
  const std::unique_ptr<std::byte, decltype(&std::free)> fill(
      static_cast<std::byte*>(std::aligned_alloc(4096, kFillBytes)), &std::free);
  std::memset(fill.get(), 0x5A, kFillBytes);
  for (std::size_t at = 0; at < bytes; at += kFillBytes) {
    const std::span<std::byte> piece(fill.get(), std::min(kFillBytes, bytes - at));
    write({&piece, 1}, at);
  }
}

PlainDisk::~PlainDisk() {
  io_uring_queue_exit(&ring_);
  ::close(file_);
}

bool PlainDisk::available() {
  io_uring ring{};
  if (io_uring_queue_init(1, &ring, 0) < 0) return false;
  io_uring_queue_exit(&ring);
  return true;
}

void PlainDisk::transfer(std::span<const std::span<std::byte>> pieces, std::uint64_t offset, bool writes) {
  std::size_t begun = 0;
  std::size_t done = 0;
  while (done < pieces.size()) {
    for (; begun < pieces.size() && begun - done < depth_; ++begun) {
      io_uring_sqe* const entry = io_uring_get_sqe(&ring_);
      const std::span<std::byte> piece = pieces[begun];
      const auto length = static_cast<unsigned>(piece.size());
      if (writes) io_uring_prep_write(entry, file_, piece.data(), length, offset);
      if (!writes) io_uring_prep_read(entry, file_, piece.data(), length, offset);
      io_uring_sqe_set_data64(entry, piece.size());
      offset += piece.size();
    }
    if (const int answer = io_uring_submit_and_wait(&ring_, 1); answer < 0) refused("io_uring", -answer);
    io_uring_cqe* completion = nullptr;
    for (; io_uring_peek_cqe(&ring_, &completion) == 0; ++done) {
      const std::int64_t result = completion->res;
      const auto asked = static_cast<std::int64_t>(io_uring_cqe_get_data64(completion));
      io_uring_cqe_seen(&ring_, completion);
      if (result < 0) refused("the plain file", static_cast<int>(-result));
      if (result != asked) throw std::runtime_error("the plain file: a short transfer");
    }
  }
}

}  // namespace cairn::bench
