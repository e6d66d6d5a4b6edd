#include "engine_property/test_tiers.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <thread>
#include <utility>

#include "engine_property/broken.h"
#include "replay/verifying_model.h"
#include "tier/async_io.h"
#include "tier/file_store.h"

namespace cairn::testing {
namespace {

using namespace std::chrono_literals;

constexpr auto kForEver = 60s;  // never over, unless something hangs
constexpr auto kForLost = 100ms;
constexpr std::size_t kBuffers = 256;
constexpr std::size_t kQueueDepth = 8;

// Beside the working directory: a build's, on a real disk, where direct I/O works.
std::string new_directory() {
  static std::atomic<std::uint64_t> next{0};
  return (std::filesystem::current_path() / fmt::format("engine_store_{}_{}", ::getpid(), next.fetch_add(1))).string();
}

SpillLayout layout_of(const EngineSettings& settings) {
  return {.fingerprint = {.weights = "those of the verifying model", .kv_type = "u64", .layout = "shards"},
          .block_size = settings.block_size,
          .block_bytes = settings.blocks > 0 ? settings.block_size * replay::kKvBytesPerToken : 0,
          .snapshot_bytes = settings.slots > 0 ? settings.shards * kShardBytes : 0,
          .record_tokens = settings.blocks > 0 ? 0 : settings.tokens_max / 2};
}

}  // namespace

TestTiers::TestTiers(const EngineSettings& settings, std::shared_ptr<FaultPlan> faults)
    : settings_(settings), faults_(std::move(faults)) {
  if (!any()) return;
  if (has_files()) directory_ = new_directory();
  open();
}

TestTiers::~TestTiers() {
  store_.reset();
  std::error_code ignored;
  if (!directory_.empty()) std::filesystem::remove_all(directory_, ignored);
}

SpillOptions TestTiers::spill() const {
  SpillOptions options = settings_.spill;
  options.write_through = options.write_through && any();
  return options;
}

std::chrono::milliseconds TestTiers::flush_timeout() const {
  return is_reliable() ? std::chrono::milliseconds(kForEver) : 50ms;
}

// ---- Opening ----

std::size_t TestTiers::record_bytes() const {
  return buffers_->record_bytes(settings_.blocks > 0 ? RecordKind::kBlock : RecordKind::kPlainSnapshot);
}

void TestTiers::open() {
  if (settings_.store == StoreKind::kHeld) {
    constexpr std::size_t kBytes = kBuffers * 8192;
    held_ = held_ ? held_->started_again() : std::make_shared<HeldStore>(layout_of(settings_), kBytes);
    held_->found_in(settings_.held_tier);
    held_->hold_gets(settings_.held_tier == Tier::kFile);
    store_ = held_;
    buffers_ = held_->buffers();
  } else {
    buffers_ = std::make_shared<SpillBuffers>(layout_of(settings_), kBuffers * 8192);
    switch (settings_.store) {
      case StoreKind::kRam:
        store_ = make_ram();
        break;
      case StoreKind::kFile:
        store_ = open_files();
        break;
      default:
        store_ = make_tiered_store(make_ram(), open_files());
        break;
    }
  }
  if (!settings_.copies_are_late) return;
  if (!device_) device_ = std::make_shared<LateDevice>();
  device_->know(*buffers_);
}

std::shared_ptr<SpillStore> TestTiers::make_ram() const {
  return make_ram_store({.buffers = buffers_, .bytes_max = settings_.ram_records * record_bytes()});
}

std::shared_ptr<SpillStore> TestTiers::open_files() {
  FileStoreOptions options{
      .buffers = buffers_, .directory = directory_, .bytes_max = settings_.file_bytes, .queue_depth = kQueueDepth};
  if (is_reliable()) {
    options.io = settings_.uring ? FileStoreOptions::Io::kBest : FileStoreOptions::Io::kThreads;
    OpenedStore opened = open_file_store(options);
    if (!opened.store) throw Broken("a store can't be opened: " + opened.error.message);
    return opened.store;
  }
  options.io_timeout = 5ms;
  options.retry_after = 1ms;
  // The fault may strike here: an operator would try again.
  constexpr int kTries = 3;
  for (int tries = 1;; ++tries) {
    OpenedStore opened =
        open_file_store(options, std::make_unique<FaultyIo>(make_threaded_io(kQueueDepth, 1), faults_));
    if (opened.store) return opened.store;
    if (tries == kTries) throw Broken("a store can't be opened: " + opened.error.message);
  }
}

void TestTiers::open_again(bool empty) {
  past_ = stats();
  store_.reset();
  if (empty && held_) held_.reset();
  if (empty && has_files()) std::filesystem::remove_all(directory_);
  open();
}

// ---- What is under way ----

bool TestTiers::pump() {
  bool any = held_ && held_->answer_gets() > 0;
  while (device_ && device_->copies().complete()) any = true;
  return any;
}

bool TestTiers::holds() const {
  return (held_ && held_->held_gets() > 0) || (device_ && device_->copies().pending() > 0);
}

// A buffer that nobody but the RAM tier has says that whoever was called back has returned.
void TestTiers::quiesce() {
  if (!store_) return;
  const auto begun = std::chrono::steady_clock::now();
  for (;;) {
    if (pump()) continue;
    const SpillStats now = store_->stats();
    if (now.pending == 0 && !holds()) {
      if (buffers_->used_bytes() == now.ram_bytes) return;
      // The memory of an operation whose result is lost stays taken.
      if (!is_reliable() && std::chrono::steady_clock::now() > begun + kForLost) return;
    }
    if (std::chrono::steady_clock::now() > begun + kForEver) {
      throw Broken(fmt::format("{} puts and gets do not end; {} bytes of buffers are used, {} by RAM", now.pending,
                               buffers_->used_bytes(), now.ram_bytes));
    }
    std::this_thread::yield();
  }
}

// ---- Checks ----

std::string TestTiers::validate() const {
  if (!store_) return {};
  if (std::string wrong = store_->validate(); !wrong.empty()) return "store: " + wrong;
  const SpillStats now = store_->stats();
  if (now.ram_bytes > settings_.ram_records * record_bytes()) {
    return fmt::format("{} bytes are in RAM, but {} records are allowed", now.ram_bytes, settings_.ram_records);
  }
  if (buffers_->used_bytes() > buffers_->bytes_max()) return "more buffers are used than are allowed";
  return {};
}

std::string TestTiers::validate_files() const {
  if (!has_files()) return {};
  std::uint64_t bytes = 0;
  for (const auto& file : std::filesystem::directory_iterator(directory_)) {
    struct stat status{};
    if (::stat(file.path().c_str(), &status) == 0) bytes += static_cast<std::uint64_t>(status.st_blocks) * 512;
  }
  if (bytes > settings_.file_bytes) {
    return fmt::format("{} bytes are on disk, but {} are allowed", bytes, settings_.file_bytes);
  }
  return {};
}

std::string TestTiers::what_is_left() {
  if (!store_) return {};
  const SpillStats now = stats();
  if (!held_ && now.gets != now.found_in_ram + now.found_in_file + now.misses + now.failed_gets) {
    return fmt::format("{} gets, but {} found in RAM, {} in files, {} misses and {} failed", now.gets,
                       now.found_in_ram, now.found_in_file, now.misses, now.failed_gets);
  }
  store_.reset();
  held_.reset();
  // That of an operation whose result never came can't be given back.
  const std::uint64_t lost = is_reliable() ? 0 : faults_->faults() * record_bytes();
  if (buffers_->used_bytes() > lost)
    return fmt::format("{} bytes of buffers are still in use", buffers_->used_bytes());
  if (device_ && device_->copies().pending() > 0) return "copies are still under way";
  return {};
}

SpillStats TestTiers::stats() const {
  SpillStats sum = past_;
  if (!store_) return sum;
  const SpillStats now = store_->stats();
  constexpr std::array kSummed = {
      &SpillStats::puts,         &SpillStats::gets,        &SpillStats::found_in_ram,    &SpillStats::found_in_file,
      &SpillStats::misses,       &SpillStats::failed_gets, &SpillStats::evicted_records, &SpillStats::io_errors,
      &SpillStats::written_bytes};
  for (const auto field : kSummed) sum.*field += now.*field;
  return sum;
}

}  // namespace cairn::testing
