// The file store against plain direct I/O: the same sizes, as many at a time, on the same disk, in turns.
#include <cairn/spill_store.h>

#include <atomic>
#include <cstring>
#include <latch>
#include <memory>
#include <stdexcept>
#include <utility>

#include "bench/tier/plain_disk.h"
#include "bench/tier/records.h"
#include "bench/tier/rows.h"

namespace cairn::bench {
namespace {

struct Seconds {
  double put = 0;
  double get = 0;
};

// Puts batches under ever new keys, so that the store evicts all the time, as it does in use; gets what it has just
// put.
class StoreSide {
 public:
  StoreSide(const std::string& directory, const Batches& batches, std::shared_ptr<SpillBuffers> buffers)
      : batches_(batches), buffers_(std::move(buffers)) {
    const std::size_t records_bytes = batches.kept * batches.count * buffers_->record_bytes(kind_);
    OpenedStore opened = open_file_store({.buffers = buffers_,
                                          .directory = directory + "/store",
                                          .bytes_max = records_bytes + records_bytes / 16,
                                          .io = FileStoreOptions::Io::kUring,
                                          .queue_depth = batches.depth,
                                          .pending_max = 2 * batches.count});
    if (opened.store == nullptr) throw std::runtime_error(opened.error.message);
    store_ = std::move(opened.store);
    next_key_ = store_->first_key();
    // Until it evicts: by then all memory is warm, and all of its files were written once, as the plain one was.
    for (std::size_t i = 0; i < 8 * batches.kept && store_->stats().evicted_records == 0; ++i) (void)run();
    expect(store_->stats().evicted_records > 0, "the store evicted nothing");
  }

  Seconds run() {
    const TierKey first = next_key_;
    next_key_ += batches_.count;
    const Seconds took{.put = put(first), .get = get(first)};
    (void)store_->take_lost();
    return took;
  }

  void expect_healthy() const {
    const SpillStats stats = store_->stats();
    expect(stats.puts_dropped == 0 && stats.misses == 0 && stats.failed_gets == 0, "the store dropped something");
    expect(stats.io_errors == 0 && stats.damaged_records == 0, "the store met errors");
    expect(stats.found_in_ram == 0, "the store answered from memory");
    expect(store_->validate().empty(), "the store is not valid");
  }

 private:
  double put(TierKey first) {
    std::vector<SpillBufferPtr> filled;
    filled.reserve(batches_.count);
    for (std::size_t i = 0; i < batches_.count; ++i) filled.push_back(stamped_buffer(*buffers_, kind_, first + i));
    const RecordLineage lineage = lineage_of(kind_);
    std::latch left(static_cast<std::ptrdiff_t>(batches_.count));
    std::atomic<std::size_t> stored{0};
    const double start = wall_now_ns();
    for (std::size_t i = 0; i < batches_.count; ++i) {
      const PutResult result = store_->put(first + i, lineage, std::move(filled[i]), [&](bool yes) {
        stored.fetch_add(yes ? 1 : 0, std::memory_order_relaxed);
        left.count_down();
      });
      if (result != PutResult::kAccepted) throw WrongResult("put: not accepted");
    }
    left.wait();
    const double took = wall_now_ns() - start;
    expect(stored.load(std::memory_order_relaxed) == batches_.count, "put: not stored");
    return took / 1e9;
  }

  double get(TierKey first) {
    std::vector<GetResult> found(batches_.count);
    std::latch left(static_cast<std::ptrdiff_t>(batches_.count));
    const double start = wall_now_ns();
    for (std::size_t i = 0; i < batches_.count; ++i) {
      store_->get(first + i, [&, i](GetResult result) {
        found[i] = std::move(result);
        left.count_down();
      });
    }
    left.wait();
    const double took = wall_now_ns() - start;
    for (std::size_t i = 0; i < batches_.count; ++i) {
      expect(found[i].status == GetResult::Status::kFound, "get: not found");
      expect(is_stamped(std::as_const(*found[i].buffer).payload(), first + i), "get: other bytes than were put");
    }
    return took / 1e9;
  }

  const Batches batches_;
  const RecordKind kind_ = kind_of(batches_);
  const std::shared_ptr<SpillBuffers> buffers_;
  std::shared_ptr<SpillStore> store_;
  TierKey next_key_ = 0;
};

// With the store's own memory: how fast a disk takes 64 MiB depends on how many pieces of physical memory they are.
class PlainSide {
 public:
  PlainSide(const std::string& directory, const Batches& batches, std::shared_ptr<SpillBuffers> buffers)
      : batches_(batches),
        disk_(directory, batches.kept * batches.bytes(), batches.depth),
        buffers_(std::move(buffers)) {}

  Seconds run() {
    const std::uint64_t offset = turn_++ % batches_.kept * batches_.bytes();
    std::vector<SpillBufferPtr> memory;
    std::vector<std::span<std::byte>> pieces;
    for (std::size_t i = 0; i < batches_.count; ++i) {
      memory.push_back(stamped_buffer(*buffers_, kind_of(batches_), turn_ * batches_.count + i));
      pieces.push_back(memory.back()->payload());
    }
    const double start = wall_now_ns();
    disk_.write(pieces, offset);
    const double written = wall_now_ns();
    for (const std::span<std::byte> piece : pieces) std::memset(piece.data(), 0, piece.size());
    const double cleared = wall_now_ns();
    disk_.read(pieces, offset);
    const double read = wall_now_ns();
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      expect(is_stamped(pieces[i], turn_ * pieces.size() + i), "plain direct I/O: other bytes than were written");
    }
    return {.put = (written - start) / 1e9, .get = (read - cleared) / 1e9};
  }

 private:
  const Batches batches_;
  PlainDisk disk_;
  const std::shared_ptr<SpillBuffers> buffers_;
  std::size_t turn_ = 0;
};

}  // namespace

std::vector<Measurement> file_store(const Settings& settings, const std::string& directory, const Batches& batches) {
  const std::shared_ptr<SpillBuffers> buffers = buffers_for(batches, 2);
  PlainSide plain(directory, batches, buffers);
  StoreSide store(directory, batches, buffers);
  (void)plain.run();
  std::vector<Repetition> puts;
  std::vector<Repetition> gets;
  const auto bytes = static_cast<double>(batches.bytes());
  for (std::size_t r = 0; r < settings.repetitions(); ++r) {
    // Each is first in every other turn: a disk that is lent in shares gives more to who comes after a pause.
    const Seconds before = r % 2 == 0 ? plain.run() : Seconds{};
    const Seconds figure = store.run();
    const Seconds yardstick = r % 2 == 0 ? before : plain.run();
    puts.push_back({.figure = bytes / figure.put, .yardstick = bytes / yardstick.put});
    gets.push_back({.figure = bytes / figure.get, .yardstick = bytes / yardstick.get});
  }
  store.expect_healthy();
  Measurement put{.name = batches.snapshots ? "T1a" : "T2a",
                  .what = batches.snapshots ? "file store: put of 64 MiB values" : "file store: put of 64 KiB blocks",
                  .figure_unit = "B/s",
                  .yardstick_name = "direct I/O",
                  .ratio_unit = "x",
                  .target = 0.85,
                  .at_least = true};
  Measurement get = put;
  get.name = batches.snapshots ? "T1b" : "T2b";
  get.what = "the same: get";
  return {std::move(put).of(puts), std::move(get).of(gets)};
}

}  // namespace cairn::bench
