// The checker itself: it must accept what some order explains and refuse the rest.
#include "history/checker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "history/caller.h"

namespace cairn::testing {
namespace {

// Calls of several threads, made one after the other; a test then says that some of them overlapped, or that an
// answer was another one.
class CheckerTest : public ::testing::Test {
 protected:
  History history() {
    History history{stage_.options, {}, 2 * Caller::kHoldsMax};
    for (Caller* caller : {&first_, &second_}) {
      for (Call& call : caller->take_calls()) history.calls.push_back(std::move(call));
    }
    return history;
  }
  static Call& find(History& history, std::size_t thread, CallKind kind) {
    for (Call& call : history.calls) {
      if (call.thread == thread && call.kind == kind) return call;
    }
    throw std::logic_error("no such call");
  }
  // As if both had been under way at the same time.
  static void overlap(Call& a, Call& b) {
    const std::uint64_t from = std::min(a.invoked, b.invoked);
    const std::uint64_t to = std::max(a.responded, b.responded);
    a.invoked = b.invoked = from;
    a.responded = b.responded = to;
  }

  Stage stage_{{.block_size = 2}};
  Caller first_{stage_, 0};
  Caller second_{stage_, 1};
};

TEST_F(CheckerTest, CallsOneAfterTheOtherAreExplained) {
  first_.insert("ab");
  second_.lookup("abc");
  first_.acquire("a");
  first_.extend(0, "c");
  second_.release(0);
  second_.evict(5);
  first_.release_all();
  second_.evict(5);
  const History calls = history();
  const Verdict verdict = explain(calls);
  EXPECT_TRUE(verdict.explained) << verdict.complaint;
  EXPECT_GE(verdict.steps, calls.calls.size());
  EXPECT_FALSE(any_overlap(calls));
}

TEST_F(CheckerTest, AWrongAnswerIsRefusedAndSaid) {
  first_.insert("ab");
  second_.peek("ab");
  History calls = history();
  find(calls, 1, CallKind::kPeek).answer = "2";
  const Verdict verdict = explain(calls);
  EXPECT_FALSE(verdict.explained);
  EXPECT_NE(verdict.complaint.find("thread 1"), std::string::npos) << verdict.complaint;
  EXPECT_NE(verdict.complaint.find("model: 4"), std::string::npos) << verdict.complaint;
}

TEST_F(CheckerTest, AnAnswerFromBeforeIsRightOnlyWhileTheOtherCallIsUnderWay) {
  second_.peek("ab");  // nothing yet
  first_.publish("ab");
  History calls = history();
  Call& peek = find(calls, 1, CallKind::kPeek);
  Call& insert = find(calls, 0, CallKind::kInsert);
  std::swap(peek.invoked, insert.invoked);
  std::swap(peek.responded, insert.responded);
  EXPECT_FALSE(explain(calls).explained);
  overlap(peek, insert);
  EXPECT_TRUE(any_overlap(calls));
  EXPECT_TRUE(explain(calls).explained);
}

TEST_F(CheckerTest, HalfAnEvictIsRefused) {
  first_.publish("ab");
  first_.evict(2);
  second_.simple(CallKind::kCachedBlocks);
  History calls = history();
  Call& count = find(calls, 1, CallKind::kCachedBlocks);
  overlap(count, find(calls, 0, CallKind::kEvict));
  for (const char* right : {"0", "2"}) {
    count.answer = right;
    EXPECT_TRUE(explain(calls).explained) << right;
  }
  count.answer = "1";
  EXPECT_FALSE(explain(calls).explained);
}

TEST_F(CheckerTest, AUseThatWasLostIsRefused) {
  first_.publish("a");
  first_.lookup("a");
  second_.evict(1);  // nothing: it is in use
  History calls = history();
  EXPECT_TRUE(explain(calls).explained);
  find(calls, 1, CallKind::kEvict).answer = text_of(Answer(EvictedBlocks{{1001}, {}}));
  EXPECT_FALSE(explain(calls).explained);
  overlap(find(calls, 1, CallKind::kEvict), find(calls, 0, CallKind::kLookup));
  EXPECT_FALSE(explain(calls).explained) << "the lookup matched the block, so it came first and holds it";
}

TEST_F(CheckerTest, TheOrderOfUsesIsSeenInTheOrderOfEvictions) {
  first_.publish("a");
  second_.publish("b");
  first_.lookup("a");
  second_.lookup("b");
  first_.release_all();
  second_.release_all();
  first_.evict(2);
  History calls = history();
  EXPECT_TRUE(explain(calls).explained);
  find(calls, 0, CallKind::kEvict).answer = text_of(Answer(EvictedBlocks{{2001, 1001}, {}}));
  EXPECT_FALSE(explain(calls).explained);
  overlap(find(calls, 0, CallKind::kLookup), find(calls, 1, CallKind::kLookup));
  EXPECT_TRUE(explain(calls).explained) << "the lookups may have come in the other order";
}

TEST_F(CheckerTest, ReadersWhoSeeTwoInsertsInDifferentOrdersAreRefused) {
  Caller third(stage_, 2);
  Caller fourth(stage_, 3);
  first_.publish("a");
  second_.publish("b");
  third.peek("a");
  third.peek("b");
  fourth.peek("b");
  fourth.peek("a");
  History calls = history();
  for (Caller* caller : {&third, &fourth}) {
    for (Call& call : caller->take_calls()) calls.calls.push_back(std::move(call));
  }
  for (Call& call : calls.calls) {
    call.invoked = 0;  // all overlap, but for those of one thread
    call.responded = 1000;
  }
  Call& third_last = calls.calls[3];
  Call& fourth_last = calls.calls[5];
  third_last.answer = "0";
  EXPECT_TRUE(explain(calls).explained) << "a came first";
  third_last.answer = "2";
  fourth_last.answer = "0";
  EXPECT_TRUE(explain(calls).explained) << "b came first";
  third_last.answer = "0";
  EXPECT_FALSE(explain(calls).explained) << "a before b for one, b before a for the other";
}

}  // namespace
}  // namespace cairn::testing
