// The store in RAM against memcpy: an engine copies a record's bytes in before a put, and out after a get.
#include <cairn/spill_store.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "bench/tier/records.h"
#include "bench/tier/rows.h"

namespace cairn::bench {
namespace {

void copy(std::span<const std::byte> from, std::span<std::byte> to) {
  std::memcpy(to.data(), from.data(), to.size());
  asm volatile("" : : "r"(to.data()) : "memory");  // not left out
}

class Sides {
 public:
  explicit Sides(const Batches& batches)
      : batches_(batches),
        store_(make_ram_store({.buffers = buffers_, .bytes_max = batches.count * buffers_->record_bytes(kind_)})),
        next_key_(store_->first_key()) {
    for (std::size_t i = 0; i < batches.count; ++i) {
      middle_.push_back(stamped_buffer(*plain_buffers_, kind_, 0));
    }
  }

  // Nanoseconds for a batch.
  double store() {
    const double start = wall_now_ns();
    for (std::size_t i = 0; i < batches_.count; ++i) {
      const TierKey key = next_key_++;
      SpillBufferPtr buffer = buffers_->allocate(kind_);
      if (buffer == nullptr) throw WrongResult("SpillBuffers: none left");
      copy(source_->payload(), buffer->payload());
      if (store_->put(key, lineage_, std::move(buffer), [](bool) {}) != PutResult::kAccepted) {
        throw WrongResult("put: not accepted");
      }
      GetResult found;
      store_->get(key, [&](GetResult result) { found = std::move(result); });
      expect(found.status == GetResult::Status::kFound, "get: not found");
      copy(found.buffer->payload(), target_->payload());
    }
    const double took = wall_now_ns() - start;
    expect_target();
    (void)store_->take_lost();
    return took;
  }

  double plain() {
    const double start = wall_now_ns();
    for (const SpillBufferPtr& middle : middle_) {
      copy(source_->payload(), middle->payload());
      copy(std::as_const(*middle).payload(), target_->payload());
    }
    const double took = wall_now_ns() - start;
    expect_target();
    return took;
  }

  void expect_healthy() const {
    const SpillStats stats = store_->stats();
    expect(stats.puts_dropped == 0 && stats.found_in_ram == stats.gets, "the store dropped something");
    expect(store_->validate().empty(), "the store is not valid");
  }

 private:
  void expect_target() {
    expect(is_stamped(std::as_const(*target_).payload(), 7), "other bytes than were copied in");
    stamp(target_->payload(), 0);
  }

  const Batches batches_;
  const RecordKind kind_ = kind_of(batches_);
  const RecordLineage lineage_ = lineage_of(kind_);
  const std::shared_ptr<SpillBuffers> buffers_ = buffers_for(batches_, 1);
  const std::shared_ptr<SpillBuffers> plain_buffers_ = buffers_for(batches_, 1);
  const SpillBufferPtr source_ = stamped_buffer(*plain_buffers_, kind_, 7);
  const SpillBufferPtr target_ = stamped_buffer(*plain_buffers_, kind_, 0);
  std::vector<SpillBufferPtr> middle_;
  const std::shared_ptr<SpillStore> store_;
  TierKey next_key_;
};

}  // namespace

Measurement ram_store(const Settings& settings, const Batches& batches) {
  Sides sides(batches);
  (void)sides.store();
  (void)sides.store();  // evicts: all memory is warm
  (void)sides.plain();
  std::vector<Repetition> repetitions;
  const double bytes_e9 = 1e9 * static_cast<double>(batches.bytes());
  for (std::size_t r = 0; r < settings.repetitions(); ++r) {
    const double yardstick = sides.plain();
    repetitions.push_back({.figure = bytes_e9 / sides.store(), .yardstick = bytes_e9 / yardstick});
  }
  sides.expect_healthy();
  return Measurement{.name = batches.snapshots ? "T3" : "T4",
                     .what = batches.snapshots ? "RAM store: put and get of 64 MiB values"
                                               : "RAM store: put and get of 64 KiB blocks",
                     .figure_unit = "B/s",
                     .yardstick_name = "memcpy",
                     .ratio_unit = "x",
                     .target = 0.6,
                     .at_least = true}
      .of(repetitions);
}

}  // namespace cairn::bench
