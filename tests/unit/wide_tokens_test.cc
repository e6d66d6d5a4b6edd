// Token ids from 2^24 on, which an engine gives to what is no text: edges keep them in another way than ids below, so
// here each comes where ids below were before, and everything is found as if nothing had happened.
#include <algorithm>

#include "unit/radix_tree_fixture.h"

namespace cairn {
namespace {

constexpr TokenId kWide[] = {0x01000000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF};

class WideTokensTest : public ::testing::TestWithParam<std::size_t> {
 protected:
  void TearDown() override { tree_.check_books(); }

  [[nodiscard]] std::size_t block_size() const { return GetParam(); }
  // Blocks of tokens that no other call returns.
  Tokens narrow(std::size_t blocks) {
    const Tokens result = token_range(next_, blocks * block_size());
    next_ += static_cast<TokenId>(result.size());
    return result;
  }
  Tokens wide(std::size_t blocks, TokenId token) {
    Tokens result = narrow(blocks);
    result[result.size() - 1 - block_size() / 2] = token;
    return result;
  }
  static Tokens joined(Tokens first, const Tokens& second) {
    first.insert(first.end(), second.begin(), second.end());
    return first;
  }
  static Blocks ids(BlockId first, const Tokens& sequence, std::size_t block_size) {
    return block_range(first, sequence.size() / block_size);
  }

  // Each prefix of whole blocks matches whole, and is all that matches when the token after it is another one.
  void expect_found(const Tokens& sequence, const Blocks& table) {
    ASSERT_EQ(tree_.index().validate(), "");
    for (std::size_t blocks = 0; blocks <= table.size(); ++blocks) {
      Tokens asked(sequence.begin(), sequence.begin() + static_cast<std::ptrdiff_t>(blocks * block_size()));
      const Blocks expected(table.begin(), table.begin() + static_cast<std::ptrdiff_t>(blocks));
      EXPECT_EQ(tree_.touch(asked).matched_blocks, expected);
      if (blocks == table.size()) return;
      asked = sequence;
      for (const std::size_t in_block : {std::size_t{0}, block_size() / 2 - 1, block_size() - 1}) {
        for (const TokenId flip : {1U, 0x10000U, 0x01000000U, 0x80000000U}) {
          asked[blocks * block_size() + in_block] ^= flip;
          EXPECT_EQ(tree_.touch(asked).matched_blocks, expected) << blocks << " blocks, token " << in_block;
          asked[blocks * block_size() + in_block] ^= flip;
        }
      }
    }
  }

  TrackedTree tree_{RadixTreeOptions{.block_size = GetParam()}};
  TokenId next_ = 1;
};

TEST_P(WideTokensTest, AreFoundInANewEdge) {
  BlockId id = 0;
  for (const TokenId token : kWide) {
    const Tokens sequence = joined(joined(narrow(2), wide(1, token)), narrow(2));
    const Blocks table = block_range(id += 10, 5);
    tree_.cache(sequence, table);
    expect_found(sequence, table);
  }
}

TEST_P(WideTokensTest, BelowAnEdgeOfOthersMakeItLongerInNewMemory) {
  for (const TokenId token : kWide) {
    const Tokens start = narrow(3);
    const Tokens sequence = joined(joined(start, wide(2, token)), narrow(2));
    const Blocks table = block_range(token / 2, 7);
    tree_.cache(start, Blocks(table.begin(), table.begin() + 3));
    const std::size_t entries = tree_.stats().entries;
    expect_found(start, Blocks(table.begin(), table.begin() + 3));
    tree_.cache(sequence, table);
    EXPECT_EQ(tree_.stats().entries, entries);
    expect_found(sequence, table);
    const Tokens longer = joined(sequence, narrow(20));
    const Blocks longer_table = block_range(token / 2, 27);
    tree_.cache(longer, longer_table);
    expect_found(longer, longer_table);
  }
}

// An edge that grows block by block has room for more.
TEST_P(WideTokensTest, AreFoundWhereTheyWouldHaveFitIntoTheRoomThatIsLeft) {
  for (const TokenId token : kWide) {
    for (std::size_t grown = 41; grown < 46; ++grown) {
      Tokens sequence = narrow(40);
      tree_.cache(sequence, block_range(0, 40));
      for (std::size_t blocks = 41; blocks < grown; ++blocks) {
        sequence = joined(sequence, narrow(1));
        tree_.cache(sequence, block_range(0, blocks));
      }
      sequence = joined(sequence, wide(1, token));
      tree_.cache(sequence, block_range(0, grown));
      expect_found(sequence, block_range(0, grown));
      sequence = joined(sequence, narrow(3));
      tree_.cache(sequence, block_range(0, grown + 3));
      expect_found(sequence, block_range(0, grown + 3));
      tree_.clear_all();
    }
  }
}

TEST_P(WideTokensTest, AreFoundInAChildAndOthersInAChildOfIt) {
  for (const TokenId token : kWide) {
    const Tokens trunk = narrow(6);
    tree_.cache(trunk, block_range(0, 6));
    Tokens branch(trunk.begin(), trunk.begin() + static_cast<std::ptrdiff_t>(3 * block_size()));
    branch = joined(branch, wide(3, token));
    const Blocks branch_table = {0, 1, 2, 13, 14, 15};
    tree_.cache(branch, branch_table);
    Tokens twig(branch.begin(), branch.begin() + static_cast<std::ptrdiff_t>(4 * block_size()));
    twig = joined(twig, narrow(3));
    const Blocks twig_table = {0, 1, 2, 13, 24, 25, 26};
    tree_.cache(twig, twig_table);
    expect_found(trunk, block_range(0, 6));
    expect_found(branch, branch_table);
    expect_found(twig, twig_table);
  }
}

TEST_P(WideTokensTest, AreFoundAfterEvictionGaveBackTheEndOfTheirEdgeAndItGrewAgain) {
  for (const TokenId token : kWide) {
    for (const std::size_t first_wide : {std::size_t{0}, std::size_t{3}, std::size_t{12}}) {
      const Tokens sequence = joined(joined(narrow(first_wide), wide(1, token)), narrow(19 - first_wide));
      for (const std::size_t left : {std::size_t{15}, std::size_t{5}, std::size_t{1}}) {
        tree_.cache(sequence, block_range(0, 20));
        EXPECT_EQ(tree_.evict(20 - left).size(), 20 - left);
        expect_found(sequence, block_range(0, left));
        Tokens other(sequence.begin(), sequence.begin() + static_cast<std::ptrdiff_t>(left * block_size()));
        other = joined(joined(other, narrow(4)), wide(2, token));
        tree_.cache(other, block_range(0, left + 6));
        expect_found(other, block_range(0, left + 6));
        tree_.clear_all();
      }
    }
  }
}

TEST_P(WideTokensTest, InTheMiddleOfABlockEndSnapshotsWhereTheyShould) {
  SnapshotId slot = 0;
  for (const TokenId token : kWide) {
    const Tokens sequence = joined(joined(narrow(3), wide(2, token)), narrow(2));
    tree_.cache(sequence, block_range(0, 7));
    std::vector<std::pair<std::size_t, SnapshotId>> put;
    for (const std::size_t depth : {3 * block_size(), 4 * block_size() + block_size() / 2 - 1,
                                    4 * block_size() + block_size() / 2 + 1, 6 * block_size() + 5}) {
      tree_.put_plain(Tokens(sequence.begin(), sequence.begin() + static_cast<std::ptrdiff_t>(depth)), ++slot);
      put.emplace_back(depth, slot);
    }
    // Their tokens stay when the blocks go.
    for (const std::size_t evicted : std::vector<std::size_t>{0, 5}) {
      tree_.evict(evicted);
      for (const auto& [depth, expected] : put) {
        EXPECT_THAT(tree_.find(sequence, depth), IsResident(expected, depth));
        Tokens asked = sequence;
        asked[depth - 1] ^= 0x01000000U;
        EXPECT_NE(tree_.find(asked, depth).slot, expected) << depth;
      }
      expect_found(sequence, block_range(0, 7 - evicted));
    }
    tree_.clear_all();
  }
}

TEST_P(WideTokensTest, LeaveDiskIdsWhereTheyWere) {
  for (const TokenId token : kWide) {
    Tokens sequence = narrow(4);
    InsertOptions options;
    options.disk = {100, kNoDiskBlock, 102, 103};
    tree_.cache(sequence, block_range(0, 4), options);
    sequence = joined(sequence, wide(2, token));
    options.disk = {200, 201, 202, 203, 204, 205};
    tree_.cache(sequence, block_range(0, 6), options);
    const DiskBlocks expected = {100, 201, 102, 103, 204, 205};
    EXPECT_EQ(tree_.touch(sequence).matched_disk_block_ids, expected);
    sequence = joined(sequence, narrow(8));
    tree_.cache(sequence, block_range(0, 14));
    PrefixMatch match = tree_.touch(sequence);
    EXPECT_TRUE(std::ranges::equal(std::span(match.matched_disk_block_ids).first(6), expected));
    tree_.evict(10);
    EXPECT_EQ(tree_.touch(sequence).matched_disk_block_ids, DiskBlocks(expected.begin(), expected.begin() + 4));
    tree_.clear_all();
  }
}

TEST_P(WideTokensTest, OfAPairAreNotTakenForOthersThatDifferInTwoPlaces) {
  const Tokens kept(2 * block_size(), 0);
  tree_.cache(kept, {1, 2});
  for (std::size_t i = 0; i < kept.size(); ++i) {
    for (std::size_t j = 0; j < kept.size(); ++j) {
      for (unsigned bit = 24; bit < 32; ++bit) {
        Tokens asked = kept;
        asked[i] ^= 1U << bit;
        asked[j] ^= 1U << (bit - 8);
        EXPECT_EQ(tree_.touch(asked).matched_blocks.size(), std::min(i, j) / block_size()) << i << ", " << j;
      }
    }
  }
}

// Of 24 tokens: kept as they are.
INSTANTIATE_TEST_SUITE_P(BlocksOf, WideTokensTest, ::testing::Values(16, 32, 24),
                         [](const auto& size) { return std::to_string(size.param); });

}  // namespace
}  // namespace cairn
