// Every interleaving of two or three sequences on one CacheManager with few preemptions: admit against evict, publish,
// clear and the end of steps. Blocks and slots have bytes, which say what tokens they were computed from; each
// sequence checks what it is handed, and checks it again before it ends. Afterwards everything has to be given back.
#include <cairn/cache_manager.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "interleaving/preemptions.h"
#include "interleaving/virtual_threads.h"

namespace cairn::testing {
namespace {

constexpr std::size_t kBlockSize = 2;
constexpr std::size_t kBytes = sizeof(std::uint64_t);  // of a token's KV, and of a state

std::vector<TokenId> tokens_of(std::string_view text) {
  return {text.begin(), text.end()};
}

struct Sizes {
  std::size_t blocks = 8;
  std::size_t slots = 0;
};

// One manager and its pools, and what went wrong.
struct World {
  explicit World(const Sizes& sizes)
      : blocks(std::make_shared<BlockPool>(
            BlockPoolOptions{.blocks = sizes.blocks, .block_bytes = kBlockSize * kBytes})) {
    if (sizes.slots > 0) {
      slots = std::make_shared<SnapshotPool>(SnapshotPoolOptions{.slots = sizes.slots, .slot_bytes = kBytes});
    }
    manager = std::make_unique<CacheManager>(
        CacheManagerOptions{.block_size = kBlockSize, .blocks = blocks, .snapshots = slots, .hash_seed = 1});
  }

  void expect(bool right, const std::string& what) {
    if (!right && wrong.empty()) wrong = what;
  }

  std::shared_ptr<BlockPool> blocks;
  std::shared_ptr<SnapshotPool> slots;
  std::unique_ptr<CacheManager> manager;
  StepId last_step = 0;
  std::string wrong;
};

// A model whose KV of a token, and whose state after it, is a digest of all tokens up to it.
class Sequence {
 public:
  Sequence(World& world, std::string_view text) : world_(&world), tokens_(tokens_of(text)) {}

  // False if there are too few blocks.
  bool admit() {
    Admission admission = world_->manager->admit({.tokens = tokens_});
    if (!admission.lease) return false;
    lease_ = std::move(*admission.lease);
    if (const auto point = lease_.restore_point()) check_state(*point);
    check();
    lease_.restored();
    return true;
  }

  // One step for all that is missing, which stays in flight.
  StepId begin() {
    const StepId step = ++world_->last_step;
    lease_.writes(step, lease_.first_token_to_compute(), tokens_.size());
    for (std::size_t i = lease_.first_token_to_compute(); i < tokens_.size(); ++i) {
      const std::uint64_t value = digest(i + 1);
      std::memcpy(kv(i), &value, kBytes);
    }
    known_ = tokens_.size();
    return step;
  }

  void compute() { world_->manager->step_done(begin()); }

  void capture(std::size_t tokens) {
    const auto slot = lease_.capture(tokens);
    if (!slot) return;
    const std::uint64_t state = digest(tokens);
    world_->slots->write(*slot, 0, std::as_bytes(std::span(&state, 1)), [](std::error_code) {});
    lease_.captured(*slot);
  }

  // All blocks hold what this sequence's own tokens ask for.
  void check() {
    known_ = std::max(known_, lease_.first_token_to_compute());
    for (std::size_t i = 0; i < known_; ++i) {
      std::uint64_t value = 0;
      std::memcpy(&value, kv(i), kBytes);
      world_->expect(value == digest(i + 1), "wrong KV of token " + std::to_string(i));
    }
  }

  void run() {
    if (!admit()) return;
    compute();
    lease_.publish();
    check();
    lease_.finish();
  }

  Lease& lease() { return lease_; }

 private:
  [[nodiscard]] std::uint64_t digest(std::size_t tokens) const {
    std::uint64_t value = 17;
    for (std::size_t i = 0; i < tokens; ++i) value = value * 1'000'003 + tokens_[i];
    return value;
  }
  std::byte* kv(std::size_t token) {
    return world_->blocks->data(lease_.block_table()[token / kBlockSize]) + token % kBlockSize * kBytes;
  }
  void check_state(const RestorePoint& point) {
    std::uint64_t state = 0;
    world_->slots->read(point.slot, 0, std::as_writable_bytes(std::span(&state, 1)), [](std::error_code) {});
    world_->expect(state == digest(point.tokens), "wrong state after " + std::to_string(point.tokens) + " tokens");
  }

  World* world_;
  std::vector<TokenId> tokens_;
  std::size_t known_ = 0;  // tokens whose KV is there
  Lease lease_;
};

class LeaseInterleavingTest : public ::testing::Test {
 protected:
  // What the threads of one schedule share.
  struct Stage {
    explicit Stage(const Sizes& sizes) : world(sizes) {}
    World world;
    std::vector<Sequence> sequences{};  // gone before the world
    StepId step = 0;
  };
  using Body = std::function<void(Stage&)>;

  void explore(const Sizes& sizes, const Body& before, const std::vector<Body>& bodies) {
    BoundedSearch search(std::max<std::size_t>(preemptions_max() - (bodies.size() > 2 ? 1 : 0), 1));
    std::size_t schedules = 0;
    do {
      run_and_check(sizes, before, bodies, search);
      if (HasFatalFailure()) return;
      ++schedules;
    } while (search.next());
    std::cout << schedules << " schedules\n";
    EXPECT_GT(schedules, bodies.size());
  }

  static void run_and_check(const Sizes& sizes, const Body& before, const std::vector<Body>& bodies,
                            Chooser& chooser) {
    auto stage = std::make_unique<Stage>(sizes);
    const auto blocks = stage->world.blocks;
    const auto slots = stage->world.slots;
    before(*stage);
    std::vector<std::function<void()>> threads;
    threads.reserve(bodies.size());
    for (const Body& body : bodies) threads.emplace_back([&stage, &body] { body(*stage); });
    const Outcome run = run_virtual_threads(threads, chooser);
    if (run.stuck) {
      [[maybe_unused]] Stage* const lost = stage.release();  // its locks are held
      FAIL() << "stuck; schedule " << run.schedule;
    }
    ASSERT_EQ(stage->world.wrong, "") << "schedule " << run.schedule;
    if (stage->world.manager) {
      ASSERT_EQ(stage->world.manager->validate(), "") << "schedule " << run.schedule;
    }
    stage.reset();
    ASSERT_EQ(blocks->used_blocks(), 0U) << "schedule " << run.schedule;
    ASSERT_EQ(blocks->errors().last, "") << "schedule " << run.schedule;
    if (!slots) return;
    ASSERT_EQ(slots->used_slots(), 0U) << "schedule " << run.schedule;
    ASSERT_EQ(slots->errors().last, "") << "schedule " << run.schedule;
  }

  static void cache(Stage& stage, std::string_view text) { Sequence(stage.world, text).run(); }
};

TEST_F(LeaseInterleavingTest, AdmitAndAnotherThatEvictsWhatItIsAboutToReuse) {
  explore({.blocks = 3}, [](Stage& stage) { cache(stage, "abcd"); },
          {[](Stage& stage) { Sequence(stage.world, "abcde").run(); },
           [](Stage& stage) { Sequence(stage.world, "wx").run(); }});
}

TEST_F(LeaseInterleavingTest, TwoThatComputeTheSamePromptPublishIt) {
  explore({}, [](Stage&) {},
          {[](Stage& stage) { Sequence(stage.world, "abc").run(); },
           [](Stage& stage) { Sequence(stage.world, "abd").run(); }});
}

TEST_F(LeaseInterleavingTest, AdmitAndAClearAfterWhichTheBlocksAreUsedAgain) {
  explore({.blocks = 4}, [](Stage& stage) { cache(stage, "abcd"); },
          {[](Stage& stage) { Sequence(stage.world, "abcde").run(); },
           [](Stage& stage) {
             static_cast<void>(stage.world.manager->clear());
             Sequence(stage.world, "wx").run();
           }});
}

TEST_F(LeaseInterleavingTest, PublishAndAClearAfterWhichTheBlocksAreUsedAgain) {
  explore({.blocks = 4},
          [](Stage& stage) {
            stage.sequences.emplace_back(stage.world, "abcd");
            stage.sequences[0].admit();
            stage.sequences[0].compute();
          },
          {[](Stage& stage) {
             stage.sequences[0].lease().publish();
             stage.sequences[0].check();
             stage.sequences[0].lease().finish();
           },
           [](Stage& stage) {
             static_cast<void>(stage.world.manager->clear());
             Sequence(stage.world, "wx").run();
           }});
}

TEST_F(LeaseInterleavingTest, ALeaseIsDroppedAsItsStepEndsAndItsBlocksAreUsedAgain) {
  explore({.blocks = 2},
          [](Stage& stage) {
            stage.sequences.emplace_back(stage.world, "abcd");
            stage.sequences[0].admit();
            stage.step = stage.sequences[0].begin();
          },
          {[](Stage& stage) { stage.sequences[0].lease().abandon(); },
           [](Stage& stage) {
             World& world = stage.world;
             Sequence next(world, "wx");
             // Until the step is over its blocks are nobody else's.
             world.expect(!next.admit(), "a block was reused before its step was over");
             world.manager->step_done(stage.step);
             if (next.admit()) next.lease().finish();
           }});
}

TEST_F(LeaseInterleavingTest, AForkEndsAsItsParentPublishes) {
  explore({.blocks = 6},
          [](Stage& stage) {
            stage.sequences.emplace_back(stage.world, "abcde");
            stage.sequences[0].admit();
            stage.sequences[0].compute();
            auto forked = stage.sequences[0].lease().fork();
            stage.sequences.push_back(Sequence(stage.world, "abcde"));
            stage.sequences[1].lease() = std::move(*forked.lease);
          },
          {[](Stage& stage) {
             stage.sequences[0].check();
             stage.sequences[0].lease().finish();
           },
           [](Stage& stage) { stage.sequences[1].lease().abandon(); }});
}

TEST_F(LeaseInterleavingTest, AdmitAndACaptureThatNeedsItsSlot) {
  explore({.blocks = 8, .slots = 1},
          [](Stage& stage) {
            Sequence first(stage.world, "abcd");
            first.admit();
            first.compute();
            first.capture(4);
            first.lease().finish();
            stage.sequences.emplace_back(stage.world, "wx");
            stage.sequences[0].admit();
            stage.sequences[0].compute();
          },
          {[](Stage& stage) { Sequence(stage.world, "abcde").run(); },
           [](Stage& stage) {
             stage.sequences[0].capture(2);
             stage.sequences[0].lease().finish();
           }});
}

TEST_F(LeaseInterleavingTest, ALeaseIsDroppedAsItsManagerGoes) {
  explore(
      {.blocks = 4},
      [](Stage& stage) {
        cache(stage, "ab");
        stage.sequences.emplace_back(stage.world, "abcd");
        stage.sequences[0].admit();
        stage.step = stage.sequences[0].begin();
      },
      {[](Stage& stage) { stage.sequences[0].lease().abandon(); }, [](Stage& stage) { stage.world.manager.reset(); }});
}

TEST_F(LeaseInterleavingTest, AdmitPublishAndClearAtOnce) {
  explore({.blocks = 5}, [](Stage& stage) { cache(stage, "ab"); },
          {[](Stage& stage) { Sequence(stage.world, "abcd").run(); },
           [](Stage& stage) { Sequence(stage.world, "abcx").run(); },
           [](Stage& stage) { static_cast<void>(stage.world.manager->clear()); }});
}

}  // namespace
}  // namespace cairn::testing
