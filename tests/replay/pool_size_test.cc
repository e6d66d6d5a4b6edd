#include "replay/pool_size.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

namespace cairn::replay {
namespace {

using testing::HasSubstr;

TEST(PoolSize, ReadsBlocksTokensAndShares) {
  EXPECT_EQ(PoolSize::parse("20000").blocks(16, 0), 20'000U);
  EXPECT_EQ(PoolSize::parse("20k").blocks(16, 0), 20'000U);
  EXPECT_EQ(PoolSize::parse("1000t").blocks(16, 0), 62U) << "rounded down";
  EXPECT_EQ(PoolSize::parse("2Mt").blocks(16, 0), 125'000U);
  EXPECT_EQ(PoolSize::parse("1Gt").blocks(512, 0), 1'953'125U);
  EXPECT_EQ(PoolSize::parse("10%").blocks(16, 170'899), 17'089U);
  EXPECT_EQ(PoolSize::parse("0.5%").blocks(16, 1000), 5U);
  EXPECT_EQ(PoolSize::parse("250%").blocks(16, 1000), 2500U);
  EXPECT_TRUE(PoolSize::parse("10%").is_share());
  EXPECT_FALSE(PoolSize::parse("10t").is_share());
  EXPECT_EQ(PoolSize::parse("2Mt").text(), "2Mt");
}

TEST(PoolSize, RefusesOtherTextAndNamesIt) {
  for (const char* text : {"",
                           "t",
                           "%",
                           "k",
                           "x",
                           "-1",
                           "1.5",
                           "1tk",
                           "1 k",
                           "0",
                           "0t",
                           "0%",
                           "-5%",
                           "nan%",
                           "inf%",
                           "1001%",
                           "1x%",
                           "99999999999999999999",
                           "999999999999G",
                           "5T"}) {
    try {
      PoolSize::parse(text);
      ADD_FAILURE() << "'" << text << "' was taken";
    } catch (const std::invalid_argument& error) {
      EXPECT_THAT(error.what(), HasSubstr("'" + std::string(text) + "'"));
    }
  }
}

TEST(PoolSize, RefusesSizesOfLessThanABlockOrMoreThanThereAreIds) {
  EXPECT_THROW(static_cast<void>(PoolSize::parse("15t").blocks(16, 0)), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(PoolSize::parse("1%").blocks(16, 99)), std::invalid_argument);
  EXPECT_EQ(PoolSize::parse("1%").blocks(16, 100), 1U);
  EXPECT_EQ(PoolSize::parse("4294967294").blocks(16, 0), 4'294'967'294U);
  EXPECT_THROW(static_cast<void>(PoolSize::parse("4294967295").blocks(16, 0)), std::invalid_argument);
}

}  // namespace
}  // namespace cairn::replay
