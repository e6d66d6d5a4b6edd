// Threads on one pool, with bytes that are not atomic: the thread sanitizer sees a block or slot that two hold at
// once.
#include <cairn/block_pool.h>
#include <cairn/snapshot_pool.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <latch>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "support/manual_device.h"

namespace cairn {
namespace {

constexpr std::size_t kThreads = 4;

std::size_t below(std::mt19937_64& random, std::size_t end) {
  return std::uniform_int_distribution<std::size_t>(0, end - 1)(random);
}

// All at once; returns when all are done.
void on_threads(const auto& body) {
  std::latch start(kThreads);
  std::vector<std::jthread> threads;
  threads.reserve(kThreads);
  for (std::size_t id = 0; id < kThreads; ++id) {
    threads.emplace_back([&, id] {
      start.arrive_and_wait();
      body(id);
    });
  }
}

// A reference on a block and what its bytes are, handed from thread to thread.
struct Shared {
  BlockId block;
  std::byte content;
};

class SharedBlocks {
 public:
  void put(Shared shared) {
    const std::lock_guard lock(mutex_);
    shared_.push_back(shared);
  }
  std::optional<Shared> take(std::size_t which) {
    const std::lock_guard lock(mutex_);
    if (shared_.empty()) return std::nullopt;
    std::swap(shared_[which % shared_.size()], shared_.back());
    const Shared taken = shared_.back();
    shared_.pop_back();
    return taken;
  }

 private:
  std::mutex mutex_;
  std::vector<Shared> shared_;
};

TEST(MemoryStressTest, ABlockHasItsBytesToItselfUntilItsLastReferenceIsDropped) {
  constexpr int kRounds = 3000;
  BlockPool pool({.blocks = 16, .block_bytes = 64});
  SharedBlocks bag;
  std::atomic<std::size_t> wrong{0};
  std::atomic<std::size_t> checked{0};
  const auto check_and_drop = [&](const Shared& shared) {
    const std::byte* const bytes = pool.data(shared.block);
    if (!std::all_of(bytes, bytes + pool.block_bytes(), [&](std::byte b) { return b == shared.content; })) ++wrong;
    ++checked;
    pool.drop_references({&shared.block, 1});
  };
  on_threads([&](std::size_t id) {
    std::mt19937_64 random(id);
    std::vector<BlockId> blocks;
    for (int round = 0; round < kRounds; ++round) {
      blocks.clear();
      if (pool.allocate(1 + below(random, 3), blocks)) {
        const auto content = static_cast<std::byte>(random());
        for (const BlockId block : blocks) std::fill_n(pool.data(block), pool.block_bytes(), content);
        pool.add_references(blocks);  // one for the bag
        for (const BlockId block : blocks) bag.put({.block = block, .content = content});
        pool.drop_references(blocks);
      }
      if (const auto shared = bag.take(random())) check_and_drop(*shared);
      if (below(random, 3) == 0) {
        if (const auto shared = bag.take(random())) check_and_drop(*shared);
      }
      if (pool.free_blocks() > pool.total_blocks()) ++wrong;
    }
  });
  while (const auto shared = bag.take(0)) check_and_drop(*shared);
  EXPECT_EQ(wrong, 0U);
  EXPECT_GT(checked, kThreads * 1000);
  EXPECT_EQ(pool.validate(), "");
  EXPECT_EQ(pool.free_blocks(), pool.total_blocks());
  EXPECT_EQ(pool.errors().last, "");
}

TEST(MemoryStressTest, BrokenCallsFromAllSidesLeaveASwapPoolWhole) {
  constexpr int kRounds = 3000;
  SwapBlockPool pool(8);
  on_threads([&](std::size_t id) {
    std::mt19937_64 random(id);
    std::vector<DiskBlockId> blocks;
    for (int round = 0; round < kRounds; ++round) {
      blocks.clear();
      const bool got = pool.allocate(below(random, 4), blocks);
      if (!got) blocks = {static_cast<DiskBlockId>(below(random, 10)), kNoDiskBlock};
      if (below(random, 2) == 0) pool.add_references(blocks);
      pool.drop_references(blocks);
      pool.drop_references(blocks);
      if (round % 100 == 0) {
        EXPECT_EQ(pool.validate(), "");
      }
    }
  });
  EXPECT_EQ(pool.validate(), "");
  EXPECT_GT(pool.errors().not_in_use, 0U);
  for (DiskBlockId block = 0; block < pool.total_blocks(); ++block) {
    while (pool.references(block) > 0) pool.drop_references({&block, 1});
  }
  EXPECT_EQ(pool.free_blocks(), pool.total_blocks());
}

// Each thread fills slots by copies, reads them out by a copy of its own, and frees them while that is pending.
// Another thread does the copies in an order of its own.
TEST(MemoryStressTest, ASlotHasItsBytesToItselfUntilItsLastCopyIsDone) {
  constexpr int kRounds = 1500;
  constexpr std::size_t kBytes = 64;
  const auto device = std::make_shared<testing::ManualDevice>();
  SnapshotPool pool({.slots = 3, .slot_bytes = kBytes, .device = device});
  std::atomic<bool> stopping{false};
  std::jthread copier([&] {
    std::mt19937_64 random(99);
    while (!stopping || device->pending() > 0) {
      if (!device->complete(below(random, 4))) device->complete();
      std::this_thread::yield();
    }
  });

  std::atomic<std::size_t> wrong{0};
  std::atomic<std::size_t> checked{0};
  on_threads([&](std::size_t id) {
    std::mt19937_64 random(id);
    for (int round = 0; round < kRounds; ++round) {
      const std::optional<SnapshotId> slot = pool.allocate();
      if (!slot) {
        std::this_thread::yield();
        continue;
      }
      std::atomic<int> done{0};
      const std::vector<std::byte> bytes(kBytes, static_cast<std::byte>(random()));
      std::vector<std::byte> got(kBytes);
      const auto wait_for = [&](int count) {
        while (done.load(std::memory_order_acquire) < count) std::this_thread::yield();
      };
      const auto count = [&](std::error_code /*error*/) { done.fetch_add(1, std::memory_order_release); };
      pool.write(*slot, 0, bytes, count);
      if (below(random, 4) == 0) {
        if (!pool.free(*slot)) ++wrong;
        wait_for(1);
        continue;
      }
      wait_for(1);
      if (!pool.commit(*slot)) ++wrong;
      pool.read(*slot, 0, got, count);
      if (!pool.free(*slot)) ++wrong;
      wait_for(2);
      if (got != bytes) ++wrong;
      ++checked;
    }
  });
  stopping = true;
  copier.join();
  EXPECT_EQ(wrong, 0U);
  EXPECT_GT(checked, kThreads);
  EXPECT_EQ(pool.validate(), "");
  EXPECT_EQ(pool.free_slots(), pool.total_slots());
  EXPECT_EQ(pool.errors().last, "");
}

}  // namespace
}  // namespace cairn
