// A file store in a directory of its own.
#ifndef CAIRN_TESTS_TIER_STORE_FIXTURE_H_
#define CAIRN_TESTS_TIER_STORE_FIXTURE_H_

#include <cairn/spill_store.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "tier/records.h"

namespace cairn::testing {

inline constexpr std::chrono::milliseconds kLong{60'000};  // never over, unless something hangs

// Removed at the end. Beside the working directory: a build's, on a real disk, where direct I/O works.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string name = (std::filesystem::current_path() / "store_XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// What all files of a directory take on disk.
inline std::uint64_t disk_bytes(const std::string& directory) {
  std::uint64_t bytes = 0;
  for (const auto& file : std::filesystem::directory_iterator(directory)) {
    struct stat status{};
    if (::stat(file.path().c_str(), &status) == 0) bytes += static_cast<std::uint64_t>(status.st_blocks) * 512;
  }
  return bytes;
}

class FileStoreFixture : public ::testing::Test {
 protected:
  void TearDown() override {
    if (store_ == nullptr) return;
    EXPECT_TRUE(store_->flush(kLong));
    EXPECT_EQ(store_->validate(), "");
    const SpillStats stats = store_->stats();
    EXPECT_EQ(stats.pending, 0U);
    EXPECT_EQ(stats.gets, stats.found_in_ram + stats.found_in_file + stats.misses + stats.failed_gets);
    EXPECT_LE(disk_bytes(), options_.bytes_max);
    store_.reset();
    EXPECT_EQ(buffers_->used_bytes(), 0U);
  }

  void open() {
    store_.reset();
    OpenedStore opened = open_file_store(options_);
    ASSERT_NE(opened.store, nullptr) << opened.error.message;
    store_ = std::move(opened.store);
  }
  void reopen() { open(); }

  [[nodiscard]] std::uint64_t disk_bytes() const { return testing::disk_bytes(options_.directory); }

  TemporaryDirectory directory_;
  std::shared_ptr<SpillBuffers> buffers_ = std::make_shared<SpillBuffers>(small_layout(), 1 << 20);
  FileStoreOptions options_{
      .buffers = buffers_, .directory = directory_.path() + "/store", .bytes_max = 1'000'000, .queue_depth = 16};
  std::shared_ptr<SpillStore> store_;
};

}  // namespace cairn::testing

#endif  // CAIRN_TESTS_TIER_STORE_FIXTURE_H_
