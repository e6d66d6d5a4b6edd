// What can't be reached through the pools: 2^32 references take too long to add.
#include "memory/counted_ids.h"

#include <gtest/gtest.h>

namespace cairn {
namespace {

TEST(CountedIdsTest, RefusesAReferenceThatCantBeCountedAndKeepsTheOthers) {
  CountedIds ids({.count = 2, .references_max = 3});
  std::vector<std::uint32_t> held;
  ASSERT_TRUE(ids.allocate(2, held));
  EXPECT_EQ(held, (std::vector<std::uint32_t>{0, 1}));
  const std::vector<std::uint32_t> added = {0, 0, 0, 1, 0};
  ids.add_references(added);
  EXPECT_EQ(ids.references(0), 3U);
  EXPECT_EQ(ids.references(1), 2U);
  EXPECT_EQ(ids.errors().count_limits, 2U);
  EXPECT_EQ(ids.errors().last, "add_references: block 0 has as many references as can be counted");
  EXPECT_EQ(ids.validate(), "");
}

}  // namespace
}  // namespace cairn
