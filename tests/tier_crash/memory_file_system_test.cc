// A directory in memory, where there may be no direct I/O: the same promises.
#include <cairn/spill_store.h>
#include <gtest/gtest.h>
#include <linux/magic.h>
#include <sys/statfs.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tier_crash/known_records.h"
#include "tier_crash/session.h"
#include "tier_crash/survivors.h"
#include "tier_crash/test_folder.h"

namespace cairn::testing {
namespace {

constexpr const char* kFolder = "/dev/shm";
constexpr std::uint64_t kBytesMax = std::uint64_t{512} << 10;  // half of it for what is not records
constexpr std::chrono::seconds kFlushTimeout{60};

class MemoryFileSystemTest : public ::testing::TestWithParam<FileStoreOptions::Io> {};

TEST_P(MemoryFileSystemTest, KeepsWhatADiskKeeps) {
  struct statfs status{};
  if (::statfs(kFolder, &status) != 0 || status.f_type != TMPFS_MAGIC) GTEST_SKIP() << kFolder << " is not in memory";
  const TestFolder folder(kFolder);
  const std::string directory = folder / "store";
  const auto buffers = std::make_shared<SpillBuffers>(known_layout(), std::size_t{2} << 20);
  const FileStoreOptions options{.buffers = buffers, .directory = directory, .bytes_max = kBytesMax, .io = GetParam()};
  Survivors survivors(Survivors::Durable::kWhenAcknowledged);
  {
    OpenedStore opened = open_file_store(options);
    ASSERT_TRUE(opened.store) << opened.error.message;
    Session session(std::move(opened.store), survivors);
    session.run_small_workload(kFlushTimeout);
    session.check_stats();
    EXPECT_EQ(session.store().stats().io_errors, 0U);
    EXPECT_GT(session.store().stats().evicted_records, 0U);
    EXPECT_EQ(session.store().validate(), "");
    EXPECT_LE(disk_bytes(directory), kBytesMax);
  }
  const OpenedStore again = open_file_store(options);
  ASSERT_TRUE(again.store) << again.error.message;
  const Recovery recovery = check_recovered(*again.store, survivors);
  EXPECT_EQ(recovery.missing, std::vector<TierKey>{});
  EXPECT_GT(recovery.compared, 0U);
  EXPECT_LE(disk_bytes(directory), kBytesMax);
}

INSTANTIATE_TEST_SUITE_P(All, MemoryFileSystemTest,
                         ::testing::Values(FileStoreOptions::Io::kBest, FileStoreOptions::Io::kThreads),
                         [](const ::testing::TestParamInfo<FileStoreOptions::Io>& io) {
                           return io.param == FileStoreOptions::Io::kBest ? "Best" : "Threads";
                         });

}  // namespace
}  // namespace cairn::testing
