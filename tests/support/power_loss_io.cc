// PowerLossDisk and PowerLossIo of faulty_io.h.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "support/faulty_io.h"

namespace cairn::testing {
namespace {

constexpr std::size_t kSectorBytes = 512;

void write_all(int file, std::span<const std::byte> bytes, std::uint64_t offset) {
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(file, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count <= 0) throw std::runtime_error("PowerLossDisk: the real disk fails");
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    offset += static_cast<std::uint64_t>(count);
  }
}

}  // namespace

class PowerLossDisk::Impl {
 public:
  // What an operation came to.
  struct Done {
    IoResult result;
    std::uint64_t change = 0;               // its number; 0: it changes nothing
    std::pair<dev_t, ino_t> synced_file{};  // kSync
    std::vector<std::uint64_t> synced_changes{};
    std::uint64_t life = 0;  // between which cuts
  };

  Impl() = default;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    for (auto& [id, file] : files_) {
      for (const Change& change : file.changes) apply(file, change);  // what was written is in the files in the end
      ::close(file.real);
    }
  }

  Done perform(const IoRequest& request) {
    const MutexLock lock(mutex_);
    ++operations_;
    Done done = perform_locked(request);
    done.life = life_;
    if (!cut_ && operations_ == cut_at_) cut_locked(cut_seed_);
    return done;
  }

  // The result as its owner sees it: from here on the operation is over.
  IoResult hand_out(const Done& done) {
    const MutexLock lock(mutex_);
    if (done.life != life_ || cut_) return {.token = done.result.token, .error = EIO};
    if (done.result.error != 0) return done.result;
    if (done.change != 0) over_.insert(done.change);
    if (!done.synced_changes.empty()) make_durable(files_.at(done.synced_file), done.synced_changes);
    return done.result;
  }

  void cut(std::uint64_t seed) {
    const MutexLock lock(mutex_);
    if (!cut_) cut_locked(seed);
  }
  void cut_at(std::uint64_t nth, std::uint64_t seed) {
    const MutexLock lock(mutex_);
    cut_at_ = nth;
    cut_seed_ = seed;
  }
  void restore() {
    const MutexLock lock(mutex_);
    cut_ = false;
  }
  std::uint64_t operations() {
    const MutexLock lock(mutex_);
    return operations_;
  }
  bool is_cut() {
    const MutexLock lock(mutex_);
    return cut_;
  }
  std::size_t unsynced() {
    const MutexLock lock(mutex_);
    std::size_t count = 0;
    for (const auto& [id, file] : files_) count += file.changes.size();
    return count;
  }

 private:
  // A write, or a punch: `bytes` are zeros then.
  struct Change {
    std::uint64_t number = 0;
    bool punch = false;
    std::uint64_t offset = 0;
    std::vector<std::byte> bytes;
  };
  struct File {
    int real = -1;  // without O_DIRECT, so that single sectors can be written
    std::vector<Change> changes;
  };

  Done perform_locked(const IoRequest& request) CAIRN_REQUIRES(mutex_) {
    Done done{.result = {.token = request.token}};
    struct stat status{};
    if (cut_ || ::fstat(request.file, &status) != 0) {
      done.result.error = cut_ ? EIO : EBADF;
      return done;
    }
    done.synced_file = {status.st_dev, status.st_ino};
    File& file = files_[done.synced_file];
    if (file.real < 0) {
      const std::string path = "/proc/self/fd/" + std::to_string(request.file);
      file.real = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
      if (file.real < 0) throw std::runtime_error("PowerLossDisk: can't open the file once more");
    }
    switch (request.kind) {
      case IoRequest::Kind::kRead:
        done.result.bytes = read(file, request);
        break;
      case IoRequest::Kind::kWrite:
      case IoRequest::Kind::kPunch:
        done.change = change(file, request);
        done.result.bytes = request.kind == IoRequest::Kind::kWrite ? request.length : 0;
        break;
      case IoRequest::Kind::kSync:
        for (const Change& one : file.changes) {
          if (over_.count(one.number) > 0) done.synced_changes.push_back(one.number);
        }
        break;
    }
    return done;
  }

  static std::size_t read(const File& file, const IoRequest& request) {
    const ssize_t count = ::pread(file.real, request.memory, request.length, static_cast<off_t>(request.offset));
    if (count < 0) throw std::runtime_error("PowerLossDisk: the real disk fails");
    const std::uint64_t end = request.offset + static_cast<std::uint64_t>(count);
    for (const Change& change : file.changes) {
      const std::uint64_t from = std::max(change.offset, request.offset);
      const std::uint64_t to = std::min(change.offset + change.bytes.size(), end);
      if (from >= to) continue;
      std::memcpy(request.memory + (from - request.offset), change.bytes.data() + (from - change.offset), to - from);
    }
    return static_cast<std::size_t>(count);
  }

  std::uint64_t change(File& file, const IoRequest& request) CAIRN_REQUIRES(mutex_) {
    Change made{.number = ++last_change_,
                .punch = request.kind == IoRequest::Kind::kPunch,
                .offset = request.offset,
                .bytes = std::vector<std::byte>(request.length)};
    if (!made.punch) {
      std::memcpy(made.bytes.data(), request.memory, request.length);
      struct stat status{};
      const auto end = static_cast<off_t>(request.offset + request.length);
      const bool known = ::fstat(file.real, &status) == 0;
      if (known && status.st_size < end && ::ftruncate(file.real, end) != 0) {
        throw std::runtime_error("PowerLossDisk: the real disk fails");
      }
    }
    file.changes.push_back(std::move(made));
    return last_change_;
  }

  static void apply(const File& file, const Change& change) {
    if (!change.punch) {
      write_all(file.real, change.bytes, change.offset);
      return;
    }
    // It is no use to insist where holes can't be punched: zeros are what is promised then.
    struct stat status{};
    if (::fallocate(file.real, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(change.offset),
                    static_cast<off_t>(change.bytes.size())) != 0 &&
        ::fstat(file.real, &status) == 0 && change.offset < static_cast<std::uint64_t>(status.st_size)) {
      write_all(file.real, change.bytes, change.offset);
    }
  }

  void make_durable(File& file, const std::vector<std::uint64_t>& numbers) CAIRN_REQUIRES(mutex_) {
    std::vector<Change> left;
    for (Change& change : file.changes) {
      const bool durable = std::find(numbers.begin(), numbers.end(), change.number) != numbers.end();
      if (durable) {
        apply(file, change);
        over_.erase(change.number);
      } else {
        left.push_back(std::move(change));
      }
    }
    file.changes = std::move(left);
  }

  void cut_locked(std::uint64_t seed) CAIRN_REQUIRES(mutex_) {
    cut_ = true;
    ++life_;
    std::mt19937_64 random(seed);
    for (auto& [id, file] : files_) {
      for (std::size_t i = file.changes.size(); i > 1; --i) std::swap(file.changes[i - 1], file.changes[random() % i]);
      for (const Change& change : file.changes) {
        switch (random() % 3) {
          case 0:
            apply(file, change);
            break;
          case 1:
            break;  // lost
          default:
            tear(file, change, random);
        }
      }
      file.changes.clear();
    }
    over_.clear();
  }

  static void tear(const File& file, const Change& change, std::mt19937_64& random) {
    struct stat status{};
    if (::fstat(file.real, &status) != 0) return;
    for (std::size_t at = 0; at < change.bytes.size(); at += kSectorBytes) {
      const std::size_t length = std::min(kSectorBytes, change.bytes.size() - at);
      const std::uint64_t end = change.offset + at + length;
      const bool reaches_beyond = end > static_cast<std::uint64_t>(status.st_size);  // a punch keeps the size
      if (random() % 2 == 0 && !reaches_beyond) {
        write_all(file.real, std::span(change.bytes).subspan(at, length), change.offset + at);
      }
    }
  }

  Mutex mutex_;
  std::map<std::pair<dev_t, ino_t>, File> files_ CAIRN_GUARDED_BY(mutex_);
  std::set<std::uint64_t> over_ CAIRN_GUARDED_BY(mutex_);  // changes whose results were handed out, not durable
  std::uint64_t last_change_ CAIRN_GUARDED_BY(mutex_) = 0;
  std::uint64_t operations_ CAIRN_GUARDED_BY(mutex_) = 0;
  std::uint64_t life_ CAIRN_GUARDED_BY(mutex_) = 0;  // counts cuts
  std::uint64_t cut_at_ CAIRN_GUARDED_BY(mutex_) = 0;
  std::uint64_t cut_seed_ CAIRN_GUARDED_BY(mutex_) = 0;
  bool cut_ CAIRN_GUARDED_BY(mutex_) = false;
};

PowerLossDisk::PowerLossDisk() : impl_(std::make_shared<Impl>()) {}
PowerLossDisk::~PowerLossDisk() = default;
void PowerLossDisk::cut_power(std::uint64_t seed) {
  impl_->cut(seed);
}
void PowerLossDisk::cut_power_at(std::uint64_t nth, std::uint64_t seed) {
  impl_->cut_at(nth, seed);
}
void PowerLossDisk::restore_power() {
  impl_->restore();
}
std::uint64_t PowerLossDisk::operations() const {
  return impl_->operations();
}
bool PowerLossDisk::power_is_cut() const {
  return impl_->is_cut();
}
std::size_t PowerLossDisk::unsynced_writes() const {
  return impl_->unsynced();
}

class PowerLossIo::Impl {
 public:
  Impl(std::shared_ptr<PowerLossDisk::Impl> disk, std::size_t depth, std::uint64_t seed)
      : disk_(std::move(disk)), depth_(depth), random_(seed) {}

  [[nodiscard]] std::size_t depth() const { return depth_; }
  void submit(const IoRequest& request) { done_.push_back(disk_->perform(request)); }

  std::size_t wait(std::span<IoResult> results, std::chrono::milliseconds timeout) {
    sleep_until_woken_if_idle(timeout);
    if (done_.empty() || results.empty()) return 0;
    const std::size_t count = 1 + random_() % std::min(results.size(), done_.size());
    for (std::size_t i = 0; i < count; ++i) {
      std::swap(done_[random_() % done_.size()], done_.back());
      results[i] = disk_->hand_out(done_.back());
      done_.pop_back();
    }
    return count;
  }

  void wake() {
    {
      const MutexLock lock(mutex_);
      woken_ = true;
    }
    wakes_.notify_one();
  }

 private:
  void sleep_until_woken_if_idle(std::chrono::milliseconds timeout) {
    const auto deadline =
        std::chrono::steady_clock::now() + std::min<std::chrono::milliseconds>(timeout, std::chrono::hours(24));
    const MutexLock lock(mutex_);
    while (done_.empty() && !woken_) {
      if (wakes_.wait_until(mutex_, deadline) == std::cv_status::timeout) break;
    }
    woken_ = false;
  }

  const std::shared_ptr<PowerLossDisk::Impl> disk_;
  const std::size_t depth_;
  std::mt19937_64 random_;
  std::vector<PowerLossDisk::Impl::Done> done_;  // not handed out
  Mutex mutex_;
  std::condition_variable_any wakes_;
  bool woken_ CAIRN_GUARDED_BY(mutex_) = false;
};

PowerLossIo::PowerLossIo(std::shared_ptr<PowerLossDisk> disk, std::size_t depth, std::uint64_t seed)
    : impl_(std::make_unique<Impl>(disk->impl_, depth, seed)) {}
PowerLossIo::~PowerLossIo() = default;
std::string_view PowerLossIo::name() const noexcept {
  return "power loss";
}
std::size_t PowerLossIo::depth() const noexcept {
  return impl_->depth();
}
void PowerLossIo::submit(const IoRequest& request) noexcept {
  impl_->submit(request);
}
std::size_t PowerLossIo::wait(std::span<IoResult> results, std::chrono::milliseconds timeout) noexcept {
  return impl_->wait(results, timeout);
}
void PowerLossIo::wake() noexcept {
  impl_->wake();
}

}  // namespace cairn::testing
