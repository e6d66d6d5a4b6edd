// Files that somebody has damaged, between two runs or under a running store: flipped bits and lost ends. A get finds
// the right bytes or nothing, and the store says how many records it has lost that way.
#include <cairn/spill_store.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <random>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tier_crash/known_records.h"
#include "tier_crash/sizes.h"
#include "tier_crash/test_folder.h"

namespace cairn::testing {
namespace {

constexpr std::size_t kRecords = 150;
constexpr std::uint64_t kBytesMax = std::uint64_t{16} << 20;
constexpr std::size_t kBufferBytes = std::size_t{4} << 20;
constexpr std::size_t kFlipsInARound = 50;

struct Extent {
  std::filesystem::path file;
  std::uint64_t offset;
  std::uint64_t bytes;
};

// Where the file has data, as opposed to holes.
std::vector<Extent> extents_of(const std::filesystem::path& path) {
  std::vector<Extent> extents;
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  off_t data = 0;
  while ((data = ::lseek(file, data, SEEK_DATA)) >= 0) {
    const off_t hole = ::lseek(file, data, SEEK_HOLE);
    extents.push_back({path, static_cast<std::uint64_t>(data), static_cast<std::uint64_t>(hole - data)});
    data = hole;
  }
  ::close(file);
  return extents;
}

// Holes stay holes.
void copy_directory(const std::string& from, const std::string& to) {
  std::filesystem::remove_all(to);
  std::filesystem::create_directories(to);
  std::vector<char> bytes;
  for (const std::filesystem::path& path : files_of(from)) {
    const int in = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    const int out = ::open((to / path.filename()).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    ASSERT_EQ(::ftruncate(out, static_cast<off_t>(std::filesystem::file_size(path))), 0);
    for (const Extent& extent : extents_of(path)) {
      bytes.resize(extent.bytes);
      const auto size = static_cast<ssize_t>(extent.bytes);
      const auto offset = static_cast<off_t>(extent.offset);
      ASSERT_EQ(::pread(in, bytes.data(), extent.bytes, offset), size);
      ASSERT_EQ(::pwrite(out, bytes.data(), extent.bytes, offset), size);
    }
    ::close(in);
    ::close(out);
  }
}

class FlipTest : public ::testing::Test {
 protected:
  FlipTest() {
    const OpenedStore opened = open(pristine_);
    for (std::size_t record = 0; record < kRecords; ++record) {
      keys_.push_back(opened.store->first_key() + record);
      if (!put_known(*opened.store, keys_.back())) ADD_FAILURE() << "a put that nothing disturbs is not stored";
    }
    EXPECT_TRUE(opened.store->flush(std::chrono::seconds(60)));
    EXPECT_EQ(opened.store->stats().damaged_records, 0U);
  }

  OpenedStore open(const std::string& directory, bool reinitialize = false) {
    return open_file_store(
        {.buffers = buffers_, .directory = directory, .bytes_max = kBytesMax, .reinitialize = reinitialize});
  }

  void restore_directory() { copy_directory(pristine_, directory_); }

  // Anywhere in the data of all files.
  void flip_one_bit() {
    std::vector<Extent> extents;
    for (const std::filesystem::path& file : files_of(directory_)) {
      for (Extent& extent : extents_of(file)) extents.push_back(std::move(extent));
    }
    std::uint64_t bytes = 0;
    for (const Extent& extent : extents) bytes += extent.bytes;
    std::uint64_t at = random_() % bytes;
    std::size_t which = 0;
    for (; at >= extents[which].bytes; ++which) at -= extents[which].bytes;
    const auto offset = static_cast<off_t>(extents[which].offset + at);
    const int file = ::open(extents[which].file.c_str(), O_RDWR | O_CLOEXEC);
    unsigned char byte = 0;
    ASSERT_EQ(::pread(file, &byte, 1, offset), 1);
    byte = static_cast<unsigned char>(byte ^ (1U << random_() % 8));
    ASSERT_EQ(::pwrite(file, &byte, 1, offset), 1);
    ::close(file);
    ++flips_;
  }

  void flip_bits() {
    for (std::size_t flip = 0; flip < kFlipsInARound; ++flip) flip_one_bit();
  }

  void truncate_a_file() {
    const std::vector<std::filesystem::path> files = files_of(directory_);
    const std::filesystem::path& file = files[random_() % files.size()];
    const std::uintmax_t bytes = std::filesystem::file_size(file);
    if (bytes > 0) std::filesystem::resize_file(file, random_() % bytes);
  }

  // Null if the damage was such that the directory is refused; then it can be emptied.
  std::shared_ptr<SpillStore> open_damaged() {
    OpenedStore opened = open(directory_);
    if (opened.store) return opened.store;
    ++refusals_;
    EXPECT_EQ(opened.error.reason, SpillOpenError::Reason::kDamaged) << opened.error.message;
    EXPECT_NE(opened.error.message.find(directory_), std::string::npos) << opened.error.message;
    const OpenedStore emptied = open(directory_, /*reinitialize=*/true);
    EXPECT_TRUE(emptied.store && put_known(*emptied.store, emptied.store->first_key())) << emptied.error.message;
    return nullptr;
  }

  // What it has found when it was opened.
  static std::set<TierKey> take_recovered(SpillStore& store) {
    std::set<TierKey> keys;
    for (const SpillStore::Recovered& recovered : store.take_recovered()) {
      EXPECT_EQ(recovered.lineage, known_lineage(recovered.key)) << "key " << recovered.key;
      keys.insert(recovered.key);
    }
    return keys;
  }

  // Every record right or missing; what is missing was counted, and can be put again. Of records that the store did
  // not know there may be no trace.
  void check(SpillStore& store, const std::set<TierKey>& known) {
    std::size_t known_missing = 0;
    std::vector<TierKey> missing;
    for (const TierKey key : keys_) {
      const GetResult result = get_now(store, key);
      EXPECT_EQ(check_known_result(key, result), "");
      if (result.status == GetResult::Status::kFound) continue;
      EXPECT_EQ(result.status, GetResult::Status::kMissing) << "key " << key;
      missing.push_back(key);
      if (known.contains(key)) ++known_missing;
    }
    found_ += keys_.size() - missing.size();
    missing_ += missing.size();
    EXPECT_GE(store.stats().damaged_records, known_missing);
    for (const TierKey key : missing) {
      EXPECT_TRUE(put_known(store, key)) << "key " << key;
      EXPECT_EQ(get_now(store, key).status, GetResult::Status::kFound) << "key " << key;
    }
    EXPECT_EQ(store.validate(), "");
    EXPECT_FALSE(store.stats().degraded) << store.stats().degraded_reason;
  }

  void check_after_opening() {
    const std::shared_ptr<SpillStore> store = open_damaged();
    if (!store) return;
    const std::set<TierKey> known = take_recovered(*store);
    // Of a header that was flipped there is a trace, of a lost end there is none.
    const std::size_t traced = ends_are_lost_ ? 0 : kRecords;
    EXPECT_GE(store->stats().damaged_records + known.size(), traced);
    check(*store, known);
  }

  void round_while_closed(auto damage) {
    restore_directory();
    damage();
    check_after_opening();
  }

  void round_while_open(auto damage) {
    restore_directory();
    {
      const OpenedStore opened = open(directory_);
      ASSERT_TRUE(opened.store) << opened.error.message;
      const std::set<TierKey> known = take_recovered(*opened.store);
      EXPECT_EQ(known.size(), kRecords);
      damage();
      check(*opened.store, known);
    }
    check_after_opening();
  }

  void report(const char* what, std::size_t count) const {
    std::printf("%zu %s%s, CAIRN_CRASH_SEED=%llu: %zu records found, %zu missing, %zu times the directory refused\n",
                count, what, reduced_note(), static_cast<unsigned long long>(seed_), found_, missing_, refusals_);
  }

  TestFolder folder_;
  const std::string pristine_ = folder_ / "pristine";
  const std::string directory_ = folder_ / "store";
  const std::uint64_t seed_ = crash_seed();
  std::mt19937_64 random_{seed_};
  std::shared_ptr<SpillBuffers> buffers_ = std::make_shared<SpillBuffers>(known_layout(), kBufferBytes);
  std::vector<TierKey> keys_;
  std::size_t flips_ = 0;
  bool ends_are_lost_ = false;
  std::size_t found_ = 0;
  std::size_t missing_ = 0;
  std::size_t refusals_ = 0;
};

TEST_F(FlipTest, FlippedBitsAreMissesNeverWrongBytes) {
  const std::size_t flips = all_or(10'000, 1'000);
  for (bool while_open = false; flips_ < flips && !HasFailure(); while_open = !while_open) {
    SCOPED_TRACE("after " + std::to_string(flips_) + " flips, CAIRN_CRASH_SEED=" + std::to_string(seed_));
    if (while_open) {
      round_while_open([this] { flip_bits(); });
    } else {
      round_while_closed([this] { flip_bits(); });
    }
  }
  report("flips", flips_);
  EXPECT_GT(found_, missing_);
  EXPECT_GT(missing_, flips_ / 100);
}

TEST_F(FlipTest, LostEndsAreMissesNeverWrongBytes) {
  ends_are_lost_ = true;
  const std::size_t truncations = all_or(200, 20);
  for (std::size_t truncation = 0; truncation < truncations && !HasFailure(); ++truncation) {
    SCOPED_TRACE("truncation " + std::to_string(truncation) + ", CAIRN_CRASH_SEED=" + std::to_string(seed_));
    if (truncation % 2 == 0) {
      round_while_closed([this] { truncate_a_file(); });
    } else {
      round_while_open([this] { truncate_a_file(); });
    }
  }
  report("truncations", truncations);
  EXPECT_GT(found_, 0U);
  EXPECT_GT(missing_, truncations / 4);  // many lose but space that no record has
}

// Records that are whole, but where others belong: as after writes that went astray.
TEST_F(FlipTest, RecordsInTheWrongPlaceAreMissesNeverWrongBytes) {
  const std::size_t record_bytes = buffers_->record_bytes(RecordKind::kBlock);
  ends_are_lost_ = true;  // the same key twice
  const auto move_records = [&] {
    const int file = ::open((directory_ + "/blocks.slab").c_str(), O_RDWR | O_CLOEXEC);
    std::vector<char> record(record_bytes);
    for (std::size_t to = 0; to < 8; ++to) {
      const std::size_t from = to + 8;
      ASSERT_EQ(::pread(file, record.data(), record_bytes, static_cast<off_t>(from * record_bytes)),
                static_cast<ssize_t>(record_bytes));
      ASSERT_EQ(::pwrite(file, record.data(), record_bytes, static_cast<off_t>(to * record_bytes)),
                static_cast<ssize_t>(record_bytes));
    }
    ::close(file);
  };
  round_while_open(move_records);
  EXPECT_EQ(missing_, 8U);
  round_while_closed(move_records);
  EXPECT_EQ(missing_, 16U);
}

// The sharpest of all: each bit of a header in turn.
TEST_F(FlipTest, EachBitOfARecordsHeaderCounts) {
  restore_directory();
  std::size_t flips = 0;
  for (const std::filesystem::path& path : files_of(directory_)) {
    const std::vector<Extent> extents = extents_of(path);
    if (extents.empty()) continue;
    // A few hundred bytes from the start of the first data of each file: superblock or header.
    for (std::uint64_t bit = 0; bit < 8 * std::min<std::uint64_t>(extents.front().bytes, 256); bit += all_or(7, 97)) {
      SCOPED_TRACE(path.filename().string() + ", bit " + std::to_string(bit));
      restore_directory();
      const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
      const auto offset = static_cast<off_t>(extents.front().offset + bit / 8);
      unsigned char byte = 0;
      ASSERT_EQ(::pread(file, &byte, 1, offset), 1);
      byte = static_cast<unsigned char>(byte ^ (1U << bit % 8));
      ASSERT_EQ(::pwrite(file, &byte, 1, offset), 1);
      ::close(file);
      ++flips;
      check_after_opening();
      if (HasFailure()) return;
    }
  }
  report("flips in headers", flips);
  EXPECT_GT(missing_ + refusals_, 0U);
}

}  // namespace
}  // namespace cairn::testing
