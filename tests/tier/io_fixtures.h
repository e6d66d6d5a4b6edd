// What tests of AsyncIo share: aligned memory with known contents, a file, and waiting for all results.
#ifndef CAIRN_TESTS_TIER_IO_FIXTURES_H_
#define CAIRN_TESTS_TIER_IO_FIXTURES_H_

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tier/async_io.h"

namespace cairn::testing {

inline constexpr std::size_t kPage = 4096;
// For what must happen: a test that waits that long has failed.
inline constexpr std::chrono::milliseconds kLong{30'000};
inline constexpr std::chrono::milliseconds kNoTime{0};

// Aligned as direct I/O asks.
class Pages {
 public:
  explicit Pages(std::size_t pages, int fill = 0)
      : bytes_(pages * kPage), memory_(static_cast<std::byte*>(std::aligned_alloc(kPage, bytes_)), &std::free) {
    std::memset(memory_.get(), fill, bytes_);
  }
  // Other contents in every 8 bytes, by `seed`.
  static Pages numbered(std::size_t pages, std::uint64_t seed) {
    Pages result(pages);
    for (std::size_t at = 0; at < result.size(); at += sizeof seed) {
      const std::uint64_t word = (seed << 40) + at;
      std::memcpy(result.data() + at, &word, sizeof word);
    }
    return result;
  }

  [[nodiscard]] std::byte* data() { return memory_.get(); }
  [[nodiscard]] std::size_t size() const { return bytes_; }
  [[nodiscard]] std::span<const std::byte> page(std::size_t number, std::size_t count = 1) const {
    return {memory_.get() + number * kPage, count * kPage};
  }
  [[nodiscard]] bool operator==(const Pages& other) const {
    return bytes_ == other.bytes_ && std::memcmp(memory_.get(), other.memory_.get(), bytes_) == 0;
  }

 private:
  std::size_t bytes_;
  std::unique_ptr<std::byte, void (*)(void*)> memory_;
};

inline bool same(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
}

// Opened for direct I/O where the file system has it; gone at the end.
class ScratchFile {
 public:
  ScratchFile() : path_(::testing::TempDir() + "cairn_io_XXXXXX") {
    const int made = ::mkstemp(path_.data());
    file_ = ::open(path_.c_str(), O_RDWR | O_CLOEXEC | O_DIRECT);
    if (file_ < 0) file_ = ::open(path_.c_str(), O_RDWR | O_CLOEXEC);
    ::close(made);
  }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  ~ScratchFile() {
    ::close(file_);
    ::unlink(path_.c_str());
  }

  [[nodiscard]] int file() const { return file_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  // Past any AsyncIo.
  [[nodiscard]] Pages read(std::size_t pages, std::size_t from = 0) const {
    Pages result(pages, 0xEE);
    EXPECT_EQ(::pread(file_, result.data(), result.size(), static_cast<off_t>(from * kPage)),
              static_cast<ssize_t>(result.size()));
    return result;
  }
  void write(Pages& pages, std::size_t at = 0) const {
    EXPECT_EQ(::pwrite(file_, pages.data(), pages.size(), static_cast<off_t>(at * kPage)),
              static_cast<ssize_t>(pages.size()));
  }

 private:
  std::string path_;
  int file_ = -1;
};

inline IoRequest read_request(int file, std::size_t page, Pages& pages, std::uint64_t token) {
  return {.kind = IoRequest::Kind::kRead,
          .file = file,
          .offset = page * kPage,
          .memory = pages.data(),
          .length = pages.size(),
          .token = token};
}
inline IoRequest write_request(int file, std::size_t page, Pages& pages, std::uint64_t token) {
  IoRequest request = read_request(file, page, pages, token);
  request.kind = IoRequest::Kind::kWrite;
  return request;
}
inline IoRequest sync_request(int file, std::uint64_t token) {
  return {.kind = IoRequest::Kind::kSync, .file = file, .token = token};
}
inline IoRequest punch_request(int file, std::size_t page, std::size_t pages, std::uint64_t token) {
  return {
      .kind = IoRequest::Kind::kPunch, .file = file, .offset = page * kPage, .length = pages * kPage, .token = token};
}

// Waits for `count` results; fewer if kLong passes.
inline std::vector<IoResult> results_of(AsyncIo& io, std::size_t count) {
  const auto deadline = std::chrono::steady_clock::now() + kLong;
  std::vector<IoResult> all;
  std::vector<IoResult> some(count);
  while (all.size() < count && std::chrono::steady_clock::now() < deadline) {
    const std::size_t now = io.wait(std::span(some).first(count - all.size()), kLong);
    all.insert(all.end(), some.begin(), some.begin() + static_cast<std::ptrdiff_t>(now));
  }
  EXPECT_EQ(all.size(), count);
  return all;
}

// Does one operation.
inline IoResult result_of(AsyncIo& io, const IoRequest& request) {
  io.submit(request);
  const std::vector<IoResult> results = results_of(io, 1);
  const IoResult result = results.empty() ? IoResult{.token = ~request.token} : results.front();
  EXPECT_EQ(result.token, request.token);
  return result;
}

}  // namespace cairn::testing

#endif  // CAIRN_TESTS_TIER_IO_FIXTURES_H_
