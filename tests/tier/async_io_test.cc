// Both implementations of AsyncIo against real files.
#include "tier/async_io.h"

#include <gtest/gtest.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <future>
#include <iterator>
#include <map>
#include <ostream>
#include <thread>

#include "support/sanitizers.h"
#include "tier/io_fixtures.h"

namespace cairn {
namespace {

using testing::kLong;
using testing::kNoTime;
using testing::kPage;
using testing::Pages;
using testing::punch_request;
using testing::read_request;
using testing::result_of;
using testing::results_of;
using testing::ScratchFile;
using testing::sync_request;
using testing::write_request;

std::unique_ptr<AsyncIo> make_threads(std::size_t depth) {
  return make_threaded_io(depth);
}

struct Implementation {
  const char* name;
  std::unique_ptr<AsyncIo> (*make)(std::size_t depth);
};
void PrintTo(const Implementation& implementation, std::ostream* out) {
  *out << implementation.name;
}

class AsyncIoTest : public ::testing::TestWithParam<Implementation> {
 protected:
  static constexpr std::size_t kDepth = 32;

  void SetUp() override {
    io_ = GetParam().make(kDepth);
    if (io_ == nullptr) GTEST_SKIP() << "this kernel, or the sandbox around this process, does not allow io_uring";
  }

  // Nothing comes that was not asked for.
  void TearDown() override {
    if (io_ == nullptr) return;
    std::array<IoResult, 1> none{};
    EXPECT_EQ(io_->wait(none, kNoTime), 0U);
  }

  ScratchFile scratch_;
  std::unique_ptr<AsyncIo> io_;
};

INSTANTIATE_TEST_SUITE_P(Implementations, AsyncIoTest,
                         ::testing::Values(Implementation{"io_uring", make_uring_io},
                                           Implementation{"threads", make_threads}),
                         [](const auto& made) { return std::string(made.param.name); });

TEST_P(AsyncIoTest, SaysWhatItIs) {
  EXPECT_EQ(io_->name(), GetParam().make == make_uring_io ? "io_uring" : "pread/pwrite");
  EXPECT_EQ(io_->depth(), kDepth);
}

TEST_P(AsyncIoTest, AWriteIsInTheFileAndAReadFindsIt) {
  Pages written = Pages::numbered(3, 1);
  const IoResult write = result_of(*io_, write_request(scratch_.file(), 2, written, 7));
  EXPECT_EQ(write.error, 0);
  EXPECT_EQ(write.bytes, 3 * kPage);
  EXPECT_EQ(scratch_.read(3, 2), written);

  Pages read(3, 0xEE);
  const IoResult result = result_of(*io_, read_request(scratch_.file(), 2, read, 8));
  EXPECT_EQ(result.error, 0);
  EXPECT_EQ(result.bytes, 3 * kPage);
  EXPECT_EQ(read, written);
}

TEST_P(AsyncIoTest, ALargeRequestHasOneResult) {
  constexpr std::size_t kPages = (std::size_t{64} << 20) / kPage;
  Pages written = Pages::numbered(kPages, 2);
  EXPECT_EQ(result_of(*io_, write_request(scratch_.file(), 1, written, 1)).bytes, written.size());
  Pages read(kPages, 0xEE);
  EXPECT_EQ(result_of(*io_, read_request(scratch_.file(), 1, read, 2)).bytes, written.size());
  EXPECT_EQ(read, written);
}

TEST_P(AsyncIoTest, AReadAcrossTheEndOfTheFileIsShortAndBeyondItEmpty) {
  Pages written = Pages::numbered(2, 3);
  scratch_.write(written);
  Pages read(4, 0xEE);
  const IoResult across = result_of(*io_, read_request(scratch_.file(), 1, read, 1));
  EXPECT_EQ(across.error, 0);
  EXPECT_EQ(across.bytes, kPage);
  EXPECT_TRUE(testing::same(read.page(0), written.page(1)));
  const IoResult beyond = result_of(*io_, read_request(scratch_.file(), 9, read, 2));
  EXPECT_EQ(beyond.error, 0);
  EXPECT_EQ(beyond.bytes, 0U);
}

TEST_P(AsyncIoTest, ALargeReadAcrossTheEndOfTheFileSaysHowFarItCame) {
  constexpr std::size_t kPages = (std::size_t{5} << 20) / kPage + 3;
  Pages written = Pages::numbered(kPages, 4);
  scratch_.write(written);
  Pages read((std::size_t{16} << 20) / kPage, 0xEE);
  const IoResult across = result_of(*io_, read_request(scratch_.file(), 0, read, 1));
  EXPECT_EQ(across.error, 0);
  EXPECT_EQ(across.bytes, written.size());
  EXPECT_TRUE(testing::same(read.page(0, kPages), written.page(0, kPages)));
}

TEST_P(AsyncIoTest, SyncSucceedsAndMovesNothing) {
  Pages written = Pages::numbered(1, 5);
  EXPECT_EQ(result_of(*io_, write_request(scratch_.file(), 0, written, 1)).error, 0);
  const IoResult sync = result_of(*io_, sync_request(scratch_.file(), 2));
  EXPECT_EQ(sync.error, 0);
  EXPECT_EQ(sync.bytes, 0U);
}

TEST_P(AsyncIoTest, APunchedRangeReadsAsZerosAndTakesNoSpace) {
  constexpr std::size_t kPages = 64;
  Pages written = Pages::numbered(kPages, 6);
  scratch_.write(written);
  struct stat before{};
  ASSERT_EQ(::fsync(scratch_.file()), 0);
  ASSERT_EQ(::fstat(scratch_.file(), &before), 0);

  const IoResult punch = result_of(*io_, punch_request(scratch_.file(), 8, 48, 1));
  if (punch.error == EOPNOTSUPP) GTEST_SKIP() << "this file system can't punch holes";
  EXPECT_EQ(punch.error, 0);
  EXPECT_EQ(punch.bytes, 0U);

  const Pages read = scratch_.read(kPages);
  EXPECT_TRUE(testing::same(read.page(0, 8), written.page(0, 8)));
  EXPECT_TRUE(testing::same(read.page(8, 48), Pages(48).page(0, 48)));
  EXPECT_TRUE(testing::same(read.page(56, 8), written.page(56, 8)));
  struct stat after{};
  ASSERT_EQ(::fstat(scratch_.file(), &after), 0);
  EXPECT_EQ(after.st_size, before.st_size);
  EXPECT_LE(after.st_blocks + static_cast<blkcnt_t>(48 * kPage / 512), before.st_blocks);
}

TEST_P(AsyncIoTest, ErrorsAreResults) {
  Pages pages(1);
  EXPECT_EQ(result_of(*io_, read_request(-1, 0, pages, 1)).error, EBADF);
  EXPECT_EQ(result_of(*io_, write_request(-1, 0, pages, 2)).error, EBADF);
  EXPECT_EQ(result_of(*io_, sync_request(-1, 3)).error, EBADF);
  EXPECT_EQ(result_of(*io_, punch_request(-1, 0, 1, 4)).error, EBADF);
  const int read_only = ::open(scratch_.path().c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_GE(read_only, 0);
  const IoResult refused = result_of(*io_, write_request(read_only, 0, pages, 5));
  EXPECT_EQ(refused.error, EBADF);
  EXPECT_EQ(refused.bytes, 0U);
  ::close(read_only);
}

TEST_P(AsyncIoTest, ManyMayBeUnderWayAndEachHasItsOwnResult) {
  constexpr std::size_t kRounds = 20;
  std::vector<Pages> written;
  std::vector<Pages> read;
  for (std::size_t i = 0; i < kDepth; ++i) {
    written.push_back(Pages::numbered(16, i));
    read.emplace_back(16, 0xEE);
  }
  for (std::size_t round = 0; round < kRounds; ++round) {
    const bool writes = round % 2 == 0;
    for (std::size_t i = 0; i < kDepth; ++i) {
      const std::size_t page = (round / 2 * kDepth + i) * 16;
      io_->submit(writes ? write_request(scratch_.file(), page, written[i], i)
                         : read_request(scratch_.file(), page, read[i], i));
    }
    std::map<std::uint64_t, int> seen;
    for (const IoResult& result : results_of(*io_, kDepth)) {
      EXPECT_EQ(result.error, 0);
      EXPECT_EQ(result.bytes, 16 * kPage);
      ++seen[result.token];
    }
    EXPECT_EQ(seen.size(), kDepth);
  }
  EXPECT_EQ(read, written);
}

TEST_P(AsyncIoTest, OfWritesOneBehindTheOtherOneThatFailsFailsAlone) {
  constexpr std::size_t kWrites = 20;
  constexpr std::size_t kFailing = 5;
  void* const forbidden = ::mmap(nullptr, kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(forbidden, MAP_FAILED);
  std::vector<Pages> written;
  for (std::size_t i = 0; i < kWrites; ++i) written.push_back(Pages::numbered(1, i));
  for (std::size_t i = 0; i < kWrites; ++i) {
    IoRequest request = write_request(scratch_.file(), i, written[i], i);
    if (i == kFailing) request.memory = static_cast<std::byte*>(forbidden);
    io_->submit(request);
  }
  for (const IoResult& result : results_of(*io_, kWrites)) {
    EXPECT_EQ(result.error, result.token == kFailing ? EFAULT : 0) << result.token;
    EXPECT_EQ(result.bytes, result.token == kFailing ? 0 : kPage) << result.token;
  }
  for (std::size_t i = 0; i < kWrites; ++i) {
    if (i == kFailing) continue;
    EXPECT_EQ(scratch_.read(1, i), written[i]) << i;
  }
  ::munmap(forbidden, kPage);
}

TEST_P(AsyncIoTest, ResultsThatDoNotFitComeWithTheNextWait) {
  Pages pages(1);
  for (std::size_t i = 0; i < 5; ++i) io_->submit(write_request(scratch_.file(), i, pages, i));
  std::vector<std::uint64_t> tokens;
  while (tokens.size() < 5) {
    std::array<IoResult, 2> some{};
    const std::size_t count = io_->wait(some, kLong);
    ASSERT_GE(count, 1U);
    for (std::size_t i = 0; i < count; ++i) tokens.push_back(some.at(i).token);
  }
  std::sort(tokens.begin(), tokens.end());
  EXPECT_EQ(tokens, (std::vector<std::uint64_t>{0, 1, 2, 3, 4}));
}

TEST_P(AsyncIoTest, AWaitForNothingEndsWithItsTimeout) {
  std::array<IoResult, 1> results{};
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(io_->wait(results, std::chrono::milliseconds(20)), 0U);
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(20));
  EXPECT_EQ(io_->wait(results, kNoTime), 0U);
}

// A pipe answers only when something was written to it: a device that takes its time.
class Pipe {
 public:
  Pipe() { EXPECT_EQ(::pipe(ends_.data()), 0); }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    ::close(ends_[0]);
    ::close(ends_[1]);
  }
  [[nodiscard]] int reader() const { return ends_[0]; }
  void write(Pages& pages) const {
    EXPECT_EQ(::write(ends_[1], pages.data(), pages.size()), static_cast<ssize_t>(pages.size()));
  }

 private:
  std::array<int, 2> ends_{};
};

TEST_P(AsyncIoTest, AWakeFromAnotherThreadEndsAWait) {
  std::array<IoResult, 1> results{};
  for (int i = 0; i < 50; ++i) {
    const std::future<void> waking = std::async(std::launch::async, [&] { io_->wake(); });
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(io_->wait(results, kLong), 0U);
    EXPECT_LT(std::chrono::steady_clock::now() - start, kLong);
  }
}

TEST_P(AsyncIoTest, AWakeBeforeTheWaitEndsTheNextWaitAndNoOtherOne) {
  std::array<IoResult, 1> results{};
  const auto start = std::chrono::steady_clock::now();
  io_->wake();
  io_->wake();
  EXPECT_EQ(io_->wait(results, kLong), 0U);
  EXPECT_LT(std::chrono::steady_clock::now() - start, kLong);
  const auto second = std::chrono::steady_clock::now();
  EXPECT_EQ(io_->wait(results, std::chrono::milliseconds(20)), 0U);
  EXPECT_GE(std::chrono::steady_clock::now() - second, std::chrono::milliseconds(20));
}

TEST_P(AsyncIoTest, MayBeUsedByAnotherThreadThanTheOneThatMadeIt) {
  Pages pages = Pages::numbered(4, 9);
  std::async(std::launch::async, [&] {
    EXPECT_EQ(result_of(*io_, write_request(scratch_.file(), 0, pages, 1)).bytes, pages.size());
    std::array<IoResult, 1> none{};
    EXPECT_EQ(io_->wait(none, kNoTime), 0U);
  }).get();
  // That thread is no more, and what it left in the ring ended with it: waits and wakes go on.
  std::array<IoResult, 1> results{};
  const std::future<void> waking = std::async(std::launch::async, [&] { io_->wake(); });
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(io_->wait(results, kLong), 0U);
  EXPECT_LT(std::chrono::steady_clock::now() - start, kLong);
  EXPECT_EQ(scratch_.read(4), pages);
}

TEST_P(AsyncIoTest, TheDestructorWaitsForWhatIsUnderWay) {
  std::vector<Pages> written;
  for (std::size_t i = 0; i < kDepth; ++i) written.push_back(Pages::numbered(64, i));
  for (std::size_t i = 0; i < kDepth; ++i) io_->submit(write_request(scratch_.file(), i * 64, written[i], i));
  io_.reset();
  for (std::size_t i = 0; i < kDepth; ++i) EXPECT_EQ(scratch_.read(64, i * 64), written[i]);
}

// Memory that whoever writes to it waits for, as on a device that hangs, until release().
class HangingMemory {
 public:
  HangingMemory()
      : memory_(::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)),
        faults_(static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC))) {
    uffdio_api api{.api = UFFD_API, .features = 0, .ioctls = 0};
    uffdio_register range{};
    range.range = {.start = reinterpret_cast<std::uintptr_t>(memory_), .len = kPage};
    range.mode = UFFDIO_REGISTER_MODE_MISSING;
    hangs_ = faults_ >= 0 && ::ioctl(faults_, UFFDIO_API, &api) == 0 && ::ioctl(faults_, UFFDIO_REGISTER, &range) == 0;
  }
  HangingMemory(const HangingMemory&) = delete;
  HangingMemory& operator=(const HangingMemory&) = delete;
  ~HangingMemory() { release(); }  // the memory itself stays: whoever waited may be about to write

  [[nodiscard]] bool hangs() const { return hangs_; }  // takes privileges
  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(memory_); }
  // Waits until somebody hangs.
  void wait_for_victim() const {
    pollfd event{.fd = faults_, .events = POLLIN, .revents = 0};
    EXPECT_EQ(::poll(&event, 1, static_cast<int>(kLong.count())), 1);
  }
  void release() {
    if (faults_ >= 0) ::close(faults_);
    faults_ = -1;
  }

 private:
  void* memory_;
  int faults_;
  bool hangs_ = false;
};

std::size_t threads_of_this_process() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<std::size_t>(std::distance(begin(tasks), end(tasks)));
}

TEST(UringIoTest, TheDestructorDoesNotWaitForeverForADeviceThatHangs) {
  std::unique_ptr<AsyncIo> io = make_uring_io(4);
  if (io == nullptr) GTEST_SKIP() << "this kernel, or the sandbox around this process, does not allow io_uring";
  static Pages abandoned(1, 0xEE);  // may be written to at any time later
  const Pipe pipe;
  IoRequest hanging = read_request(pipe.reader(), 0, abandoned, 1);
  hanging.offset = ~std::uint64_t{0};  // a pipe has none
  io->submit(hanging);
  std::array<IoResult, 1> results{};
  EXPECT_EQ(io->wait(results, kNoTime), 0U);
  const auto start = std::chrono::steady_clock::now();
  io.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - start, kLong);
}

TEST(ThreadedIoTest, TheDestructorDoesNotWaitForeverForADeviceThatHangs) {
  if (testing::kThreadSanitizer) GTEST_SKIP() << "the sanitizer can't see that an abandoned thread has ended";
  HangingMemory memory;
  if (!memory.hangs()) GTEST_SKIP() << "this process may not make memory that hangs (userfaultfd)";
  const ScratchFile scratch;
  Pages pages = Pages::numbered(1, 1);
  scratch.write(pages);
  std::unique_ptr<AsyncIo> io = make_threaded_io(4, 1);
  const std::size_t threads_with_its_own = threads_of_this_process();
  IoRequest hanging = read_request(scratch.file(), 0, pages, 1);
  hanging.memory = memory.data();
  io->submit(hanging);
  memory.wait_for_victim();
  Pages never = Pages::numbered(1, 2);
  io->submit(write_request(scratch.file(), 0, never, 2));  // the only thread can't come to it
  std::array<IoResult, 1> results{};
  EXPECT_EQ(io->wait(results, kNoTime), 0U);
  const auto start = std::chrono::steady_clock::now();
  io.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - start, kLong);
  memory.release();
  while (threads_of_this_process() >= threads_with_its_own) std::this_thread::yield();
  EXPECT_EQ(scratch.read(1), pages);  // what was not begun never is
}

}  // namespace
}  // namespace cairn
