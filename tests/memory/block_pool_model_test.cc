// Random calls, broken ones among them, on a pool and on a model that is too simple to be wrong.
#include <cairn/block_pool.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace cairn {
namespace {

using Ids = std::vector<std::uint32_t>;

struct NaivePool {
  explicit NaivePool(std::size_t blocks, std::optional<std::uint32_t> no_block) : total(blocks), no_id(no_block) {
    for (std::size_t id = blocks; id > 0; --id) free.push_back(static_cast<std::uint32_t>(id - 1));
  }

  std::optional<Ids> allocate(std::size_t count) {
    if (count > free.size()) return std::nullopt;
    Ids taken(free.rbegin(), free.rbegin() + static_cast<std::ptrdiff_t>(count));
    free.resize(free.size() - count);
    for (const std::uint32_t id : taken) references[id] = 1;
    return taken;
  }

  void change(const char* call, const Ids& ids, bool add) {
    for (const std::uint32_t id : ids) {
      if (id == no_id) continue;
      if (id >= total) {
        ++unknown_ids;
        last = std::string(call) + ": there is no block " + std::to_string(id);
      } else if (!references.contains(id)) {
        ++not_in_use;
        last = std::string(call) + ": block " + std::to_string(id) + " is free";
      } else if (add) {
        ++references[id];
      } else if (--references[id] == 0) {
        references.erase(id);
        free.push_back(id);
      }
    }
  }

  std::size_t total;
  std::optional<std::uint32_t> no_id;
  std::map<std::uint32_t, std::uint32_t> references;  // of those in use
  Ids free;                                           // the newest last
  std::uint64_t unknown_ids = 0;
  std::uint64_t not_in_use = 0;
  std::string last;
};

struct Blocks {
  static BlockPool make(std::size_t blocks) { return BlockPool({.blocks = blocks}); }
  static constexpr std::optional<std::uint32_t> kNoId = std::nullopt;
};
struct SwapBlocks {
  static SwapBlockPool make(std::size_t blocks) { return SwapBlockPool(blocks); }
  static constexpr std::optional<std::uint32_t> kNoId = kNoDiskBlock;
};

template <class Kind>
class BlockPoolModelTest : public ::testing::Test {};
using Kinds = ::testing::Types<Blocks, SwapBlocks>;
TYPED_TEST_SUITE(BlockPoolModelTest, Kinds);

std::size_t below(std::mt19937_64& random, std::size_t end) {
  return std::uniform_int_distribution<std::size_t>(0, end - 1)(random);
}

// Mostly ids in use, some twice; now and then a free one, an unknown one, or the one that stands for none.
Ids some_ids(std::mt19937_64& random, const NaivePool& model) {
  Ids ids(below(random, 6));
  for (std::uint32_t& id : ids) {
    const std::size_t kind = below(random, 20);
    if (kind < 16 && !model.references.empty()) {
      auto entry = model.references.begin();
      std::advance(entry, below(random, model.references.size()));
      id = entry->first;
    } else if (kind < 18) {
      id = static_cast<std::uint32_t>(below(random, model.total));
    } else {
      id = kind == 18 ? static_cast<std::uint32_t>(model.total + below(random, 3)) : kNoDiskBlock;
    }
  }
  return ids;
}

template <class Pool>
void expect_equal(const Pool& pool, const NaivePool& model) {
  ASSERT_EQ(pool.validate(), "");
  ASSERT_EQ(pool.free_blocks(), model.free.size());
  ASSERT_EQ(pool.used_blocks(), model.references.size());
  ASSERT_EQ(pool.free_blocks() + pool.used_blocks(), pool.total_blocks());
  for (std::uint32_t id = 0; id < model.total + 2; ++id) {
    const auto found = model.references.find(id);
    ASSERT_EQ(pool.references(id), found == model.references.end() ? 0 : found->second) << "block " << id;
  }
  const PoolErrors errors = pool.errors();
  ASSERT_EQ(errors.unknown_ids, model.unknown_ids);
  ASSERT_EQ(errors.not_in_use, model.not_in_use);
  ASSERT_EQ(errors.count_limits, 0U);
  ASSERT_EQ(errors.wrong_states, 0U);
  ASSERT_EQ(errors.last, model.last);
}

template <class Pool>
void step(std::mt19937_64& random, Pool& pool, NaivePool& model) {
  const std::size_t what = below(random, 10);
  if (what < 3) {
    const std::size_t count = below(random, 20) == 0 ? below(random, 2 * model.total) : below(random, 4);
    Ids got = {99};
    const std::optional<Ids> expected = model.allocate(count);
    ASSERT_EQ(pool.allocate(count, got), expected.has_value()) << count << " blocks";
    Ids with_expected = {99};
    if (expected) with_expected.insert(with_expected.end(), expected->begin(), expected->end());
    ASSERT_EQ(got, with_expected);
  } else if (what < 5) {
    const Ids ids = some_ids(random, model);
    model.change("add_references", ids, true);
    pool.add_references(ids);
  } else {
    const Ids ids = some_ids(random, model);
    model.change("drop_references", ids, false);
    pool.drop_references(ids);
  }
}

TYPED_TEST(BlockPoolModelTest, DoesWhatTheModelDoesWhateverItIsAsked) {
  constexpr std::uint64_t kSeeds = 40;
  constexpr int kSteps = 500;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    std::mt19937_64 random(seed);
    const std::size_t blocks = 1 + below(random, 24);
    auto pool = TypeParam::make(blocks);
    NaivePool model(blocks, TypeParam::kNoId);
    for (int i = 0; i < kSteps; ++i) {
      ASSERT_NO_FATAL_FAILURE(step(random, pool, model)) << "seed " << seed << ", step " << i;
      ASSERT_NO_FATAL_FAILURE(expect_equal(pool, model)) << "seed " << seed << ", step " << i;
    }
    ASSERT_GT(model.not_in_use, 0U) << "seed " << seed << " broke no rule: nothing was tested";
    ASSERT_GT(model.unknown_ids, 0U);

    while (!model.references.empty()) {
      const Ids ids = {model.references.begin()->first};
      model.change("drop_references", ids, false);
      pool.drop_references(ids);
    }
    ASSERT_NO_FATAL_FAILURE(expect_equal(pool, model)) << "seed " << seed;
    ASSERT_EQ(pool.free_blocks(), blocks);
  }
}

}  // namespace
}  // namespace cairn
