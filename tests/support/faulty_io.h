// Disks that fail, as a test tells them to: FaultyIo puts faults before another AsyncIo, PowerLossIo forgets on demand
// what was not synced. Whoever uses the AsyncIo owns it, mostly a store; the test holds on to the plan, or to the
// disk.
#ifndef CAIRN_TESTS_SUPPORT_FAULTY_IO_H_
#define CAIRN_TESTS_SUPPORT_FAULTY_IO_H_

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string_view>

#include "tier/async_io.h"

namespace cairn::testing {

// What happens to one operation, or to several in a row.
struct IoFault {
  enum class Effect : std::uint8_t {
    kFail,   // its result is `error`
    kShort,  // only its first `bytes` are read or written, and its result says so. Reads and writes that are longer
    kSlow,   // it is done, and its result comes, only later: see `operations_until_done`
    kLose,   // its result never comes
  };
  static constexpr std::uint64_t kAllFurther = std::numeric_limits<std::uint64_t>::max();

  Effect effect = Effect::kFail;
  std::optional<IoRequest::Kind> kind{};  // of which kind it is; none: of any
  std::uint64_t nth = 1;                  // which operation of the kind, counted from 1, from when the fault was added
  std::uint64_t count = 1;                // how many from that one on
  int error = EIO;                        // kFail
  // kFail, kLose: it is done all the same. If not, a read leaves rubbish in the memory.
  bool done_all_the_same = false;
  std::size_t bytes = 0;  // kShort: a multiple of 4096 less than its length
  // kSlow: it is done when that many more operations were submitted, or that many more calls of wait were made,
  // whichever comes first; or at FaultPlan::release(). Both 0: only at release(). A wait that nothing else is under
  // way for returns at once, as long as an operation waits for waits.
  std::uint64_t operations_until_done = 0;
  std::uint64_t waits_until_done = 0;
};

// Which faults come, and what came. Thread-safe. For one FaultyIo after another, or for several at once.
class FaultPlan {
 public:
  FaultPlan();
  ~FaultPlan();
  FaultPlan(const FaultPlan&) = delete;
  FaultPlan& operator=(const FaultPlan&) = delete;

  // If several faults are meant for an operation, the one that was added first has it.
  void add(const IoFault& fault);
  // From now on each operation has a fault with this probability: any effect, EIO, ENOSPC or EROFS, done or not. The
  // seed decides. No results are lost if `lose` is false: whoever waits for them would need a timeout.
  void add_random(std::uint64_t seed, double probability, bool lose);
  // No faults from now on. Slow operations are done now; lost results stay lost.
  void heal();
  // Slow operations are done now.
  void release();

  // Since the plan was made.
  [[nodiscard]] std::uint64_t operations() const;
  [[nodiscard]] std::uint64_t operations(IoRequest::Kind kind) const;
  [[nodiscard]] std::uint64_t faults() const;  // that have struck
  // Now.
  [[nodiscard]] std::size_t slow_operations() const;  // not done yet

 private:
  friend class FaultyIo;
  class Impl;
  std::shared_ptr<Impl> impl_;
};

class FaultyIo final : public AsyncIo {
 public:
  FaultyIo(std::unique_ptr<AsyncIo> real, std::shared_ptr<FaultPlan> plan);
  // Slow operations that are not done by now never are.
  ~FaultyIo() override;

  [[nodiscard]] std::string_view name() const noexcept override;
  [[nodiscard]] std::size_t depth() const noexcept override;
  void submit(const IoRequest& request) noexcept override;
  [[nodiscard]] std::size_t wait(std::span<IoResult> results, std::chrono::milliseconds timeout) noexcept override;
  void wake() noexcept override;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// A disk with a volatile cache before real files. Writes and punches lie in the cache, where reads find them, until a
// kSync of their file; then they are in the real file. Files may be opened again at any time: they are told apart by
// inode. What goes past AsyncIo (a file's making and its size) is durable at once. Thread-safe.
class PowerLossDisk {
 public:
  PowerLossDisk();
  ~PowerLossDisk();
  PowerLossDisk(const PowerLossDisk&) = delete;
  PowerLossDisk& operator=(const PowerLossDisk&) = delete;

  // The cache is lost. Of what was not synced the seed decides: each write is kept, lost, or torn (each sector of 512
  // bytes for itself), and they reach the real files in any order. A kSync covers the writes whose results were handed
  // out before it was submitted, once its own result is handed out. From now on all operations fail with EIO.
  void cut_power(std::uint64_t seed);
  // The same when the operation is submitted that is the nth of this disk, counted from 1: it may be the first that is
  // torn.
  void cut_power_at(std::uint64_t nth, std::uint64_t seed);
  // Power is back: operations work again, on what the real files hold.
  void restore_power();

  [[nodiscard]] std::uint64_t operations() const;  // since the disk was made
  [[nodiscard]] bool power_is_cut() const;
  [[nodiscard]] std::size_t unsynced_writes() const;  // now, punches included

 private:
  friend class PowerLossIo;
  class Impl;
  std::shared_ptr<Impl> impl_;
};

// Operations are done one after the other, when they are submitted; their results come in an order that the seed
// decides.
class PowerLossIo final : public AsyncIo {
 public:
  PowerLossIo(std::shared_ptr<PowerLossDisk> disk, std::size_t depth, std::uint64_t seed);
  ~PowerLossIo() override;

  [[nodiscard]] std::string_view name() const noexcept override;
  [[nodiscard]] std::size_t depth() const noexcept override;
  void submit(const IoRequest& request) noexcept override;
  [[nodiscard]] std::size_t wait(std::span<IoResult> results, std::chrono::milliseconds timeout) noexcept override;
  void wake() noexcept override;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cairn::testing

#endif  // CAIRN_TESTS_SUPPORT_FAULTY_IO_H_
