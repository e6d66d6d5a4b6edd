#include "replay/builtin_workload.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <stdexcept>
#include <vector>

#include "replay/content_digest.h"

namespace cairn::replay {
namespace {

// One digest over everything that a request carries.
std::vector<ContentDigest> digests_of(const Workload& workload) {
  std::vector<ContentDigest> digests;
  for (std::size_t i = 0; i < workload.size(); ++i) {
    const Request& request = workload[i];
    std::vector<TokenId> all;
    workload.prompt(i, all);
    workload.append_output(i, all);
    for (const std::uint64_t value :
         {std::uint64_t{request.prompt_tokens}, static_cast<std::uint64_t>(request.timestamp_ms), request.session}) {
      all.push_back(static_cast<TokenId>(value));
    }
    std::vector<ContentDigest> one;
    append_digests(all, all.size(), request.adapter, one);
    digests.push_back(one.at(0));
  }
  return digests;
}

// The values come from a first run: they pin the workload, so that figures quoted for it stay comparable.
TEST(BuiltinWorkload, IsTheSameEverywhere) {
  const Workload workload = builtin_workload({.requests = 500, .seed = 1});
  ASSERT_EQ(workload.size(), 500U);
  ContentDigest sum;
  for (const ContentDigest& digest : digests_of(workload)) {
    sum.low += digest.low;
    sum.high += digest.high;
  }
  EXPECT_EQ(workload.prompt_tokens(), 4'499'308U);
  EXPECT_EQ(workload.output_tokens(), 98'970U);
  EXPECT_EQ(sum.low, 4590626778182157071U);
  EXPECT_EQ(sum.high, 847138183773518598U);
}

TEST(BuiltinWorkload, ALongerOneStartsWithTheShorterOne) {
  const std::vector<ContentDigest> shorter = digests_of(builtin_workload({.requests = 50, .seed = 9}));
  std::vector<ContentDigest> longer = digests_of(builtin_workload({.requests = 200, .seed = 9}));
  longer.resize(50);
  EXPECT_EQ(shorter, longer);
}

TEST(BuiltinWorkload, AnotherSeedGivesOtherRequests) {
  EXPECT_NE(digests_of(builtin_workload({.requests = 20, .seed = 1})),
            digests_of(builtin_workload({.requests = 20, .seed = 2})));
}

TEST(BuiltinWorkload, HasTheMixThatItPromises) {
  const Workload workload = builtin_workload({.requests = 2000, .seed = 3});
  std::map<AdapterId, std::size_t> per_adapter;
  std::map<SessionHash, std::vector<std::vector<TokenId>>> per_session;
  double last_ms = 0;
  for (std::size_t i = 0; i < workload.size(); ++i) {
    EXPECT_GE(workload[i].timestamp_ms, last_ms);
    last_ms = workload[i].timestamp_ms;
    EXPECT_TRUE(workload[i].has_output_tokens);
    EXPECT_GT(workload[i].output_length, 0U);
    ++per_adapter[workload[i].adapter];
    std::vector<TokenId> tokens;
    workload.prompt(i, tokens);
    EXPECT_EQ(tokens.size(), workload[i].prompt_tokens);
    per_session[workload[i].session].push_back(std::move(tokens));
  }
  EXPECT_TRUE(workload.has_timestamps());
  EXPECT_EQ(per_adapter.size(), 4U) << "the base model and three adapters";
  for (const auto& [adapter, requests] : per_adapter) EXPECT_GT(requests, 20U) << adapter;

  std::size_t grown = 0;
  std::size_t repeated = 0;
  std::size_t branched = 0;
  std::set<TokenId> first_tokens;
  for (const auto& [session, prompts] : per_session) {
    first_tokens.insert(prompts.front().front());
    for (std::size_t i = 1; i < prompts.size(); ++i) {
      const std::vector<TokenId>& before = prompts[i - 1];
      const std::vector<TokenId>& now = prompts[i];
      const bool starts_with = now.size() >= before.size() && std::equal(before.begin(), before.end(), now.begin());
      if (now == before) {
        ++repeated;
      } else if (starts_with) {
        ++grown;
      } else {
        ++branched;
      }
    }
  }
  EXPECT_GT(grown, 1000U) << "turns that go on";
  EXPECT_GT(repeated, 50U) << "retries";
  EXPECT_GT(branched, 20U) << "branches";
  EXPECT_LE(first_tokens.size(), 12U) << "system prompts: two of each tenant, shared by its sessions";
  EXPECT_GT(per_session.size(), 100U);
}

TEST(BuiltinWorkload, RefusesANumberOfRequestsThatItCannotMake) {
  EXPECT_THROW(static_cast<void>(builtin_workload({.requests = 0})), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(builtin_workload({.requests = BuiltinWorkloadOptions::kRequestsMax + 1})),
               std::invalid_argument);
}

}  // namespace
}  // namespace cairn::replay
