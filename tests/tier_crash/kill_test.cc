// A process under load is killed at any moment; whoever opens the directory next finds what was acknowledged, byte for
// byte. The directory is carried over from kill to kill.
//
// CAIRN_CRASH_KILLS is how many kills (50; a nightly run takes 1,000), CAIRN_CRASH_SEED repeats a run as far as
// scheduling lets it.
#include <cairn/spill_store.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "tier_crash/kill_log.h"
#include "tier_crash/known_records.h"
#include "tier_crash/session.h"
#include "tier_crash/sizes.h"
#include "tier_crash/survivors.h"
#include "tier_crash/test_folder.h"

extern char** environ;

namespace cairn::testing {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{4} << 20;
// The child is killed after so many entries of its log, at most; every third time at one of the first few.
constexpr std::size_t kEntriesMax = 600;
constexpr std::size_t kFewEntries = 8;

struct Setting {
  const char* name;
  std::uint64_t file_bytes_max;
  std::uint64_t ram_bytes_max;  // 0: no RAM in front of the file
  std::size_t live_max;         // more records than this are never there
  bool evicts;
};

// Roomy: nothing is ever evicted, and so nothing may be missing.
constexpr std::uint64_t kRoomyBytes = std::uint64_t{64} << 20;
constexpr std::uint64_t kTinyBytes = std::uint64_t{1} << 20;
constexpr std::uint64_t kRamBytes = std::uint64_t{256} << 10;
constexpr std::array kSettings = {
    Setting{.name = "RoomyFile", .file_bytes_max = kRoomyBytes, .ram_bytes_max = 0, .live_max = 150, .evicts = false},
    Setting{.name = "TinyFile", .file_bytes_max = kTinyBytes, .ram_bytes_max = 0, .live_max = 500, .evicts = true},
    Setting{.name = "RamBeforeRoomyFile",
            .file_bytes_max = kRoomyBytes,
            .ram_bytes_max = kRamBytes,
            .live_max = 150,
            .evicts = false},
    Setting{.name = "RamBeforeTinyFile",
            .file_bytes_max = kTinyBytes,
            .ram_bytes_max = kRamBytes,
            .live_max = 500,
            .evicts = true},
};

class Child {
 public:
  Child(const Setting& setting, const std::string& directory, std::uint64_t seed, bool uring) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
    log_ = ends[0];
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    std::vector<std::string> arguments = {CAIRN_KILLED_CHILD,
                                          directory,
                                          std::to_string(seed),
                                          std::to_string(setting.file_bytes_max),
                                          std::to_string(setting.ram_bytes_max),
                                          std::to_string(setting.live_max),
                                          uring ? "uring" : "threads"};
    std::vector<char*> pointers;
    for (std::string& argument : arguments) pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    const int failed = ::posix_spawn(&process_, CAIRN_KILLED_CHILD, &actions, nullptr, pointers.data(), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(ends[1]);
    if (failed != 0) throw std::runtime_error(std::string("posix_spawn: ") + std::strerror(failed));
  }
  ~Child() {
    kill();
    ::close(log_);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // None: the log has ended.
  std::optional<KillLogEntry> next() {
    KillLogEntry entry{};
    std::size_t bytes = 0;
    while (bytes < sizeof(entry)) {
      const ssize_t got = ::read(log_, reinterpret_cast<char*>(&entry) + bytes, sizeof(entry) - bytes);
      if (got == 0 && bytes == 0) return std::nullopt;
      if (got <= 0) throw std::runtime_error("the log ends within an entry");
      bytes += static_cast<std::size_t>(got);
    }
    return entry;
  }

  // Whether it was still running.
  bool kill() {
    if (process_ <= 0) return false;
    ::kill(process_, SIGKILL);
    int status = 0;
    ::waitpid(process_, &status, 0);
    process_ = 0;
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  }

 private:
  pid_t process_ = 0;
  int log_ = -1;
};

class KillTest : public ::testing::TestWithParam<Setting> {
 protected:
  KillTest()
      : survivors_(GetParam().ram_bytes_max > 0 ? Survivors::Durable::kWhenFlushed
                                                : Survivors::Durable::kWhenAcknowledged) {}

  // One life of the child, with its log noted.
  void run_and_kill(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    const std::size_t entries = random() % (random() % 3 == 0 ? kFewEntries : kEntriesMax);
    Child child(GetParam(), directory_, random(), random() % 2 == 0);
    for (std::size_t entry = 0; entry <= entries; ++entry) {
      const std::optional<KillLogEntry> told = child.next();
      ASSERT_TRUE(told.has_value()) << "the child has ended by itself";
      ASSERT_EQ(survivors_.note(*told), "");
    }
    ASSERT_TRUE(child.kill()) << "the child has ended by itself";
    while (const std::optional<KillLogEntry> told = child.next()) ASSERT_EQ(survivors_.note(*told), "");
  }

  // Opens what the child has left and compares it with its log.
  void check_survivors() {
    const auto buffers = std::make_shared<SpillBuffers>(known_layout(), kBufferBytes);
    if (std::filesystem::exists(directory_)) {
      ASSERT_LE(disk_bytes(directory_), GetParam().file_bytes_max);
    }
    const OpenedStore opened =
        open_file_store({.buffers = buffers, .directory = directory_, .bytes_max = GetParam().file_bytes_max});
    ASSERT_TRUE(opened.store) << opened.error.message;
    const std::size_t untold_puts = survivors_.untold_puts();
    const Recovery recovery = check_recovered(*opened.store, survivors_);
    compared_ += recovery.compared;
    if (GetParam().evicts && GetParam().ram_bytes_max > 0) {
      // What the file evicts is not lost as long as RAM has it: nobody was told, and nothing can be said.
    } else if (!GetParam().evicts) {
      EXPECT_EQ(recovery.missing, std::vector<TierKey>{}) << "acknowledged, and lost by a kill";
    } else {
      EXPECT_LE(recovery.missing.size(), evictions_max(untold_puts))
          << "more than the last " << untold_puts << " puts can have evicted; key " << recovery.missing.front();
    }
    EXPECT_LE(disk_bytes(directory_), GetParam().file_bytes_max);
  }

  static std::size_t evictions_max(std::size_t puts) { return puts * 8; }

  TestFolder folder_;
  const std::string directory_ = folder_ / "store";
  Survivors survivors_;
  std::size_t compared_ = 0;
};

TEST_P(KillTest, WhatWasAcknowledgedIsThereAfterAKillAtAnyMoment) {
  const std::uint64_t seed = crash_seed();
  const std::uint64_t in_all = environment_number("CAIRN_CRASH_KILLS", all_or(50, 12));
  const std::uint64_t kills = (in_all + kSettings.size() - 1) / kSettings.size();
  std::printf("%s: %llu of %llu kills%s, CAIRN_CRASH_SEED=%llu\n", GetParam().name,
              static_cast<unsigned long long>(kills), static_cast<unsigned long long>(in_all), reduced_note(),
              static_cast<unsigned long long>(seed));
  for (std::uint64_t kill = 0; kill < kills; ++kill) {
    SCOPED_TRACE("kill " + std::to_string(kill) + ", CAIRN_CRASH_SEED=" + std::to_string(seed));
    run_and_kill(seed * 1'000'003 + kill);
    if (HasFailure()) return;
    check_survivors();
    if (HasFailure()) return;
  }
  std::printf("%zu puts acknowledged, %zu records compared\n", survivors_.acknowledged(), compared_);
  EXPECT_GT(survivors_.acknowledged(), 20 * kills);
  EXPECT_GT(compared_, 5 * kills);
}

INSTANTIATE_TEST_SUITE_P(All, KillTest, ::testing::ValuesIn(kSettings),
                         [](const ::testing::TestParamInfo<Setting>& setting) { return setting.param.name; });

}  // namespace
}  // namespace cairn::testing
