// Recency + alpha * FLOPs saved for each byte freed, after Marconi. <cairn/snapshot_policy.h> has the rules.
#ifndef CAIRN_POLICY_SNAPSHOT_FLOP_POLICY_H_
#define CAIRN_POLICY_SNAPSHOT_FLOP_POLICY_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "policy/alpha_tuner.h"
#include "policy/flop_order.h"
#include "policy/snapshot_policy.h"

namespace cairn {

class SnapshotFlopPolicy final : public SnapshotPolicy {
 public:
  explicit SnapshotFlopPolicy(const SnapshotPolicyOptions& options);

  void reserve(std::size_t ids) override;
  void add(const Facts& facts) noexcept override;
  void remove(Id id) noexcept override;
  void use(Id id, const Use& use) noexcept override;
  void pin(Id id) noexcept override;
  void unpin(Id id) noexcept override;
  [[nodiscard]] Id choose(std::uint64_t uses) noexcept override;
  [[nodiscard]] bool wants_savings() const override { return true; }
  void above_changed(Id id, std::size_t above_tokens) noexcept override;
  void work() noexcept override;
  [[nodiscard]] std::string validate(std::size_t resident) const override;

 private:
  // While it can go it is in the order.
  struct Entry : FlopOrder::Node {
    std::uint64_t name = 0;  // for the tuner
    std::size_t tokens = 0;
    std::size_t above_tokens = 0;
    bool known = false;
    bool pinned = false;
    Id id = kNone;
  };

  [[nodiscard]] double saved_flops(const Entry& entry) const {
    return model_.flops(entry.tokens) - model_.flops(entry.above_tokens);
  }
  [[nodiscard]] AlphaTuner::Snapshot for_tuner(const Entry& entry) const {
    return {.name = entry.name, .saved_flops = saved_flops(entry), .efficiency = saved_flops(entry) / bytes_freed_};
  }
  void rate(Entry& entry) const { entry.efficiency = FlopOrder::class_of(saved_flops(entry) / bytes_freed_); }

  const ModelShape model_;
  const double bytes_freed_;
  const double fixed_alpha_;
  const std::unique_ptr<AlphaTuner> tuner_;  // null if alpha is fixed
  std::deque<Entry> entries_;                // by id; they don't move
  FlopOrder order_;                          // goes before the entries that are in it
  std::size_t known_ = 0;
  Id chosen_ = kNone;  // for eviction
};

}  // namespace cairn

#endif  // CAIRN_POLICY_SNAPSHOT_FLOP_POLICY_H_
