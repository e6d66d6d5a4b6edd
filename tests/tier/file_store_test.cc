// The store in files, sentence by sentence; with both kinds of I/O.
#include <cairn/spill_store.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tier/records.h"
#include "tier/store_directory.h"
#include "tier/store_fixture.h"

namespace cairn::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Reason = SpillOpenError::Reason;
using Status = GetResult::Status;

class FileStoreTest : public FileStoreFixture, public ::testing::WithParamInterface<FileStoreOptions::Io> {
 protected:
  void SetUp() override {
    options_.io = GetParam();
    open();
  }

  [[nodiscard]] std::string slab(const std::string& name) const { return options_.directory + "/" + name; }

  // Overwrites bytes of a closed store's slab.
  void overwrite(const std::string& name, std::uint64_t offset, const std::vector<char>& bytes) const {
    std::fstream file(slab(name), std::ios::in | std::ios::out | std::ios::binary);
    ASSERT_TRUE(file.seekp(static_cast<std::streamoff>(offset))
                    .write(bytes.data(), static_cast<std::streamsize>(bytes.size())));
  }

  [[nodiscard]] std::vector<char> slab_bytes(const std::string& name, std::uint64_t offset, std::size_t count) const {
    std::vector<char> bytes(count);
    std::ifstream file(slab(name), std::ios::binary);
    file.seekg(static_cast<std::streamoff>(offset)).read(bytes.data(), static_cast<std::streamsize>(count));
    return bytes;
  }
};

INSTANTIATE_TEST_SUITE_P(Io, FileStoreTest,
                         ::testing::Values(FileStoreOptions::Io::kThreads, FileStoreOptions::Io::kBest),
                         [](const auto& param) {
                           return param.param == FileStoreOptions::Io::kThreads ? "Threads" : "Best";
                         });

TEST_P(FileStoreTest, FindsInTheFileWhatHasComeToRest) {
  EXPECT_EQ(put_and_wait(*store_, 1), true);
  EXPECT_EQ(put_and_wait(*store_, 2, RecordKind::kTail), true);
  const GetResult block = get_and_wait(*store_, 1);
  EXPECT_EQ(block.status, Status::kFound);
  EXPECT_EQ(block.tier, Tier::kFile);
  EXPECT_TRUE(has_payload(block.buffer->payload(), 1));
  EXPECT_TRUE(is_found(*store_, 2));
  EXPECT_EQ(get_and_wait(*store_, 3).status, Status::kMissing);
  EXPECT_EQ(store_->touch(1), Tier::kFile);
  EXPECT_EQ(store_->touch(3), std::nullopt);
  EXPECT_EQ(store_->stats().file_records, 2U);
  EXPECT_EQ(store_->stats().written_bytes, 2U * 4096 + 4U * 4096);
}

TEST_P(FileStoreTest, KeepsRecordsAcrossARestartWithTheirLineage) {
  const TierKey first = store_->first_key();
  EXPECT_EQ(put_and_wait(*store_, first), true);
  EXPECT_EQ(put_and_wait(*store_, first + 1, RecordKind::kPlainSnapshot), true);
  reopen();
  EXPECT_GT(store_->first_key(), first + 1);
  EXPECT_EQ(store_->stats().recovered_records, 2U);
  std::vector<SpillStore::Recovered> recovered = store_->take_recovered();
  ASSERT_EQ(recovered.size(), 2U);
  std::ranges::sort(recovered, {}, &SpillStore::Recovered::key);
  EXPECT_EQ(recovered[0].key, first);
  EXPECT_EQ(recovered[0].lineage, block_lineage());
  EXPECT_EQ(recovered[1].lineage, snapshot_lineage());
  EXPECT_THAT(store_->take_recovered(), IsEmpty());
  EXPECT_TRUE(is_found(*store_, first));
  EXPECT_TRUE(is_found(*store_, first + 1));
}

TEST_P(FileStoreTest, ReplacesARecordAlsoAcrossARestart) {
  EXPECT_EQ(put_and_wait(*store_, 1), true);
  EXPECT_EQ(put_and_wait(*store_, 1, RecordKind::kBlock, 1), true);
  EXPECT_TRUE(is_found(*store_, 1, 1));
  EXPECT_EQ(put_and_wait(*store_, 1, RecordKind::kTail, 2), true);
  EXPECT_TRUE(is_found(*store_, 1, 2));
  EXPECT_EQ(store_->stats().file_records, 1U);
  reopen();
  EXPECT_TRUE(is_found(*store_, 1, 2));
  EXPECT_THAT(store_->take_lost(), IsEmpty());
}

TEST_P(FileStoreTest, ServesAPutUnderWayFromItsBuffer) {
  std::vector<std::future<bool>> ends;
  for (TierKey key = 1; key <= 20; ++key) {
    const auto end = std::make_shared<std::promise<bool>>();
    ends.push_back(end->get_future());
    ASSERT_EQ(store_->put(key, block_lineage(), filled_buffer(*buffers_, RecordKind::kBlock, key),
                          [end](bool stored) { end->set_value(stored); }),
              PutResult::kAccepted);
    EXPECT_TRUE(is_found(*store_, key)) << key;
  }
  for (std::future<bool>& end : ends) EXPECT_TRUE(end.get());
  const SpillStats stats = store_->stats();
  EXPECT_EQ(stats.found_in_ram + stats.found_in_file, 20U);
}

TEST_P(FileStoreTest, ErasesForGood) {
  const TierKey first = store_->first_key();
  for (TierKey key = first; key < first + 4; ++key) EXPECT_EQ(put_and_wait(*store_, key), true);
  store_->erase(first + 1);
  EXPECT_EQ(get_and_wait(*store_, first + 1).status, Status::kMissing);
  EXPECT_TRUE(store_->flush(kLong));
  EXPECT_THAT(store_->take_lost(), IsEmpty());
  EXPECT_EQ(store_->stats().erased_records, 1U);
  EXPECT_EQ(store_->validate(), "");
  reopen();
  EXPECT_EQ(store_->stats().recovered_records, 3U);
  EXPECT_EQ(get_and_wait(*store_, first + 1).status, Status::kMissing);
}

TEST_P(FileStoreTest, GivesTheSpaceOfWhatIsErasedBack) {
  for (TierKey key = 1; key <= 30; ++key) EXPECT_EQ(put_and_wait(*store_, key, RecordKind::kTail), true);
  const std::uint64_t before = disk_bytes();
  for (TierKey key = 1; key <= 30; ++key) store_->erase(key);
  EXPECT_TRUE(store_->flush(kLong));
  constexpr std::uint64_t kOfTheFileSystem = 16 << 10;  // for the holes
  EXPECT_LE(disk_bytes() + 30 * buffers_->record_bytes(RecordKind::kTail), before + kOfTheFileSystem);
}

TEST_P(FileStoreTest, IsNeverFullAndNeverOverItsLimit) {
  for (TierKey key = 1; key <= 300; ++key) {
    const RecordKind kind = key % 3 == 0 ? RecordKind::kTail : RecordKind::kBlock;
    EXPECT_EQ(put_and_wait(*store_, key, kind), true) << key;
    ASSERT_LE(disk_bytes(), options_.bytes_max) << key;
    ASSERT_EQ(store_->validate(), "") << key;
  }
  EXPECT_TRUE(is_found(*store_, 300));
  const std::vector<TierKey> lost = sorted(store_->take_lost());
  EXPECT_EQ(lost.size(), store_->stats().evicted_records);
  EXPECT_EQ(lost.size() + store_->stats().file_records, 300U);
  for (std::size_t i = 0; i < lost.size(); ++i) ASSERT_EQ(lost[i], i + 1);  // the oldest ones
}

TEST_P(FileStoreTest, EvictsTheLeastRecentlyUsed) {
  TierKey key = 1;
  while (store_->stats().evicted_records == 0) {
    if (key > 2) static_cast<void>(store_->touch(1));
    EXPECT_EQ(put_and_wait(*store_, key++), true);
  }
  EXPECT_THAT(store_->take_lost(), ElementsAre(2));
  EXPECT_TRUE(is_found(*store_, 1));
}

TEST_P(FileStoreTest, KeepsTheNewestWhenItIsOpenedWithLess) {
  const TierKey first = store_->first_key();
  for (TierKey key = first; key < first + 60; ++key) EXPECT_EQ(put_and_wait(*store_, key), true);
  options_.bytes_max = 600'000;
  reopen();
  EXPECT_LE(disk_bytes(), options_.bytes_max);
  const std::size_t kept = store_->stats().recovered_records;
  EXPECT_GT(kept, 10U);
  EXPECT_LT(kept, 60U);
  EXPECT_TRUE(is_found(*store_, first + 59));
  EXPECT_TRUE(is_found(*store_, first + 60 - kept));
  EXPECT_EQ(get_and_wait(*store_, first + 59 - kept).status, Status::kMissing);
}

TEST_P(FileStoreTest, TakesNothingLargerThanItsLimit) {
  options_.bytes_max = (256 << 10) + 3 * 4096;
  options_.directory += "_tiny";
  open();
  EXPECT_EQ(store_->put(1, snapshot_lineage(), buffers_->allocate(RecordKind::kTail), {}), PutResult::kTooLarge);
  for (TierKey key = 1; key <= 5; ++key) EXPECT_EQ(put_and_wait(*store_, key), true);
  EXPECT_TRUE(is_found(*store_, 5));
  EXPECT_EQ(store_->stats().file_records, 1U);
  EXPECT_LE(disk_bytes(), options_.bytes_max);
}

TEST_P(FileStoreTest, MissesADamagedRecordCleanly) {
  const TierKey key = store_->first_key();
  EXPECT_EQ(put_and_wait(*store_, key), true);
  store_.reset();
  overwrite("blocks.slab", 4096 + 100, {'x'});
  open();
  EXPECT_EQ(store_->stats().recovered_records, 1U);  // its header is good
  EXPECT_EQ(get_and_wait(*store_, key).status, Status::kMissing);
  EXPECT_EQ(store_->stats().damaged_records, 1U);
  EXPECT_THAT(store_->take_lost(), ElementsAre(key));
  EXPECT_TRUE(store_->flush(kLong));
  reopen();
  EXPECT_EQ(store_->stats().recovered_records, 0U);
  EXPECT_EQ(store_->stats().damaged_records, 0U);
}

TEST_P(FileStoreTest, DropsDamagedHeadersAndTruncatedRecordsAtTheStart) {
  const TierKey first = store_->first_key();
  for (TierKey key = first; key < first + 3; ++key) EXPECT_EQ(put_and_wait(*store_, key, RecordKind::kTail), true);
  store_.reset();
  overwrite("snapshots.slab", 30, {'x'});
  const std::uint64_t record = buffers_->record_bytes(RecordKind::kTail);
  std::filesystem::resize_file(slab("snapshots.slab"), 3 * record - 4096);
  open();
  EXPECT_EQ(store_->stats().damaged_records, 2U);
  EXPECT_EQ(store_->stats().recovered_records, 1U);
  EXPECT_TRUE(is_found(*store_, first + 1));
  EXPECT_EQ(put_and_wait(*store_, first + 9, RecordKind::kTail), true);
  EXPECT_TRUE(is_found(*store_, first + 9));
}

TEST_P(FileStoreTest, NoticesARecordInAnotherPlaceThanItsOwn) {
  const TierKey first = store_->first_key();
  EXPECT_EQ(put_and_wait(*store_, first), true);
  EXPECT_EQ(put_and_wait(*store_, first + 1), true);
  store_.reset();
  const std::size_t record = buffers_->record_bytes(RecordKind::kBlock);
  overwrite("blocks.slab", record, slab_bytes("blocks.slab", 0, record));  // the first over the second
  open();
  EXPECT_EQ(store_->stats().damaged_records, 1U);
  EXPECT_TRUE(is_found(*store_, first));
  EXPECT_EQ(get_and_wait(*store_, first + 1).status, Status::kMissing);
}

TEST_P(FileStoreTest, BelievesTheNewerOfTwoRecordsOfOneKey) {
  const TierKey key = store_->first_key();
  const std::size_t record = buffers_->record_bytes(RecordKind::kBlock);
  EXPECT_EQ(put_and_wait(*store_, key), true);
  const std::vector<char> older = slab_bytes("blocks.slab", 0, record);
  EXPECT_EQ(put_and_wait(*store_, key, RecordKind::kBlock, 1), true);  // in another slot
  store_.reset();
  overwrite("blocks.slab", 0, older);  // as if it had been killed before the first was wiped
  open();
  EXPECT_EQ(store_->stats().recovered_records, 1U);
  EXPECT_TRUE(is_found(*store_, key, 1));
  EXPECT_EQ(slab_bytes("blocks.slab", 0, record), std::vector<char>(record));
}

TEST_P(FileStoreTest, SharesOneReadAmongThoseWhoAskAtTheSameTime) {
  EXPECT_EQ(put_and_wait(*store_, 1), true);
  std::vector<std::future<GetResult>> ends;
  for (int i = 0; i < 50; ++i) {
    const auto end = std::make_shared<std::promise<GetResult>>();
    ends.push_back(end->get_future());
    store_->get(1, [end](GetResult result) { end->set_value(std::move(result)); });
  }
  for (std::future<GetResult>& end : ends) EXPECT_EQ(end.get().status, Status::kFound);
  const SpillStats stats = store_->stats();
  EXPECT_EQ(stats.found_in_file, 50U);
  EXPECT_EQ(stats.read_bytes, (50 - stats.shared_reads) * buffers_->record_bytes(RecordKind::kBlock));
}

TEST_P(FileStoreTest, LetsCallbacksCallIt) {
  std::promise<GetResult> found;
  ASSERT_EQ(store_->put(1, block_lineage(), filled_buffer(*buffers_, RecordKind::kBlock, 1),
                        [&](bool) { store_->get(1, [&](GetResult result) { found.set_value(std::move(result)); }); }),
            PutResult::kAccepted);
  EXPECT_EQ(found.get_future().get().status, Status::kFound);
}

TEST_P(FileStoreTest, FinishesWhatIsPendingWhenItGoes) {
  std::atomic<int> stored{0};
  const TierKey first = store_->first_key();
  for (TierKey key = first; key < first + 40; ++key) {
    ASSERT_EQ(store_->put(key, block_lineage(), filled_buffer(*buffers_, RecordKind::kBlock, key),
                          [&](bool yes) { stored += yes ? 1 : 0; }),
              PutResult::kAccepted);
  }
  reopen();
  EXPECT_EQ(stored, 40);
  EXPECT_EQ(store_->stats().recovered_records, 40U);
}

TEST_P(FileStoreTest, RefusesMoreThanItsQueueTakes) {
  options_.pending_max = 1;
  reopen();
  std::atomic<int> ends{0};
  int accepted = 0;
  int refused = 0;
  for (TierKey key = 1; key <= 100; ++key) {
    const PutResult result =
        store_->put(key, block_lineage(), filled_buffer(*buffers_, RecordKind::kBlock, key), [&](bool) { ++ends; });
    accepted += result == PutResult::kAccepted ? 1 : 0;
    refused += result == PutResult::kQueueFull ? 1 : 0;
  }
  EXPECT_EQ(accepted + refused, 100);
  EXPECT_GT(refused, 0);
  EXPECT_TRUE(store_->flush(kLong));
  EXPECT_EQ(store_->stats().puts_dropped, static_cast<std::uint64_t>(refused));
  reopen();
  EXPECT_EQ(ends, accepted);
}

TEST_P(FileStoreTest, CantBeOpenedTwice) {
  const OpenedStore second = open_file_store(options_);
  EXPECT_EQ(second.store, nullptr);
  EXPECT_EQ(second.error.reason, Reason::kLocked);
  EXPECT_THAT(second.error.message, HasSubstr(options_.directory));
  const pid_t child = ::fork();
  if (child == 0) {  // which begins no threads: sanitizers don't like it
    const StoreDirectory::Opened third = StoreDirectory::open(options_.directory, small_layout(), false);
    ::_exit(third.directory == nullptr && third.error.reason == Reason::kLocked ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_P(FileStoreTest, RefusesRecordsOfAnotherModelUnlessToldToThrowThemAway) {
  const TierKey first = store_->first_key();
  EXPECT_EQ(put_and_wait(*store_, first), true);
  store_.reset();
  SpillLayout layout = small_layout();
  layout.fingerprint.weights = "other@1";
  options_.buffers = buffers_ = std::make_shared<SpillBuffers>(layout, 1 << 20);
  OpenedStore opened = open_file_store(options_);
  EXPECT_EQ(opened.store, nullptr);
  EXPECT_EQ(opened.error.reason, Reason::kOtherFingerprint);
  EXPECT_THAT(opened.error.message, HasSubstr(to_string(small_layout().fingerprint)));
  EXPECT_THAT(opened.error.message, HasSubstr(to_string(layout.fingerprint)));

  options_.reinitialize = true;
  open();
  EXPECT_EQ(store_->stats().recovered_records, 0U);
  EXPECT_GT(store_->first_key(), first);
  EXPECT_EQ(put_and_wait(*store_, store_->first_key()), true);
  reopen();  // of the right model now: nothing is thrown away
  EXPECT_EQ(store_->stats().recovered_records, 1U);
}

TEST_P(FileStoreTest, RefusesRecordsOfAnotherLayout) {
  store_.reset();
  SpillLayout layout = small_layout();
  layout.block_bytes += 1;
  options_.buffers = std::make_shared<SpillBuffers>(layout, 1 << 20);
  const OpenedStore opened = open_file_store(options_);
  EXPECT_EQ(opened.store, nullptr);
  EXPECT_EQ(opened.error.reason, Reason::kOtherLayout);
  EXPECT_THAT(opened.error.message, HasSubstr("block_bytes=3000"));
  EXPECT_THAT(opened.error.message, HasSubstr("block_bytes=3001"));
}

TEST_P(FileStoreTest, RefusesRecordsWithoutItsMetaFile) {
  EXPECT_EQ(put_and_wait(*store_, 1), true);
  store_.reset();
  std::filesystem::remove(slab("meta"));
  const OpenedStore opened = open_file_store(options_);
  EXPECT_EQ(opened.error.reason, Reason::kDamaged);
  std::ofstream(slab("meta")) << "rubbish";
  EXPECT_EQ(open_file_store(options_).error.reason, Reason::kDamaged);
  options_.reinitialize = true;
  open();
  EXPECT_EQ(store_->stats().recovered_records, 0U);
}

TEST_P(FileStoreTest, SaysWhyADirectoryCantBeMade) {
  FileStoreOptions options = options_;
  options.directory = slab("meta") + "/x";
  const OpenedStore opened = open_file_store(options);
  EXPECT_EQ(opened.error.reason, Reason::kIo);
  EXPECT_THAT(opened.error.message, HasSubstr(options.directory));
}

TEST_P(FileStoreTest, RefusesWhatBreaksTheRules) {
  EXPECT_THROW(static_cast<void>(store_->put(0, block_lineage(), buffers_->allocate(RecordKind::kBlock), {})),
               std::invalid_argument);
  const TierKey next_run = store_->first_key() + (TierKey{1} << 40);
  EXPECT_THROW(static_cast<void>(store_->put(next_run, block_lineage(), buffers_->allocate(RecordKind::kBlock), {})),
               std::invalid_argument);
  const auto refused = [&](auto change) {
    FileStoreOptions options = options_;
    change(options);
    EXPECT_THROW(static_cast<void>(open_file_store(options)), std::invalid_argument);
  };
  refused([](FileStoreOptions& options) { options.buffers = nullptr; });
  refused([](FileStoreOptions& options) { options.directory = ""; });
  refused([](FileStoreOptions& options) { options.bytes_max = 256 << 10; });
  refused([](FileStoreOptions& options) { options.queue_depth = 0; });
  refused([](FileStoreOptions& options) { options.pending_max = 0; });
  refused([](FileStoreOptions& options) { options.io_timeout = std::chrono::milliseconds{0}; });
}

}  // namespace
}  // namespace cairn::testing
