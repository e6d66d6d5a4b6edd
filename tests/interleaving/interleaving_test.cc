// Every interleaving of two or three calls on the index with few preemptions, at each access of shared memory, after
// M. Musuvathi and S. Qadeer, "Iterative context bounding for systematic testing of multithreaded programs" (PLDI
// 2007): most bugs need two preemptions or fewer. After each, some order of the calls must explain all answers, and
// validate() must be content. With the address sanitizer, memory must not be touched after it was given back.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <iostream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "history/caller.h"
#include "history/play.h"
#include "interleaving/preemptions.h"
#include "interleaving/virtual_threads.h"

namespace cairn::testing {
namespace {

using Body = std::function<void(Caller&)>;

// One body for each virtual thread. `before` runs first, with a caller for each thread and one more.
class InterleavingTest : public ::testing::Test {
 protected:
  using Callers = std::vector<std::unique_ptr<Caller>>;

  void explore(const std::function<void(Callers&)>& before, const std::vector<Body>& bodies) {
    BoundedSearch search(std::max<std::size_t>(preemptions_max() - (bodies.size() > 2 ? 1 : 0), 1));
    std::size_t schedules = 0;
    do {
      run_and_check(before, bodies, search);
      if (HasFatalFailure()) return;
      ++schedules;
    } while (search.next());
    std::cout << schedules << " schedules, up to " << accesses_max_ << " accesses each; " << text_of(tally_) << '\n';
    EXPECT_GT(tally_.overlapping, 0U);
  }
  void explore(const std::vector<Body>& bodies) {
    explore([](Callers&) {}, bodies);
  }

  void run_and_check(const std::function<void(Callers&)>& before, const std::vector<Body>& bodies, Chooser& chooser) {
    auto stage = std::make_unique<Stage>(RadixTreeOptions{.block_size = 2});
    Callers callers;
    for (std::size_t i = 0; i <= bodies.size(); ++i) callers.push_back(std::make_unique<Caller>(*stage, i, habits));
    before(callers);
    std::vector<std::function<void()>> threads;
    threads.reserve(bodies.size());
    for (std::size_t i = 0; i < bodies.size(); ++i) {
      threads.emplace_back([&bodies, &callers, i] { bodies[i](*callers[i]); });
    }
    const Outcome run = run_virtual_threads(threads, chooser);
    accesses_max_ = std::max(accesses_max_, run.accesses);
    if (run.stuck) {
      [[maybe_unused]] Stage* const lost = stage.release();  // its locks are held
      FAIL() << "stuck; schedule " << run.schedule;
    }
    std::vector<Caller*> all;
    for (const auto& caller : callers) all.push_back(caller.get());
    ASSERT_EQ(check_history(*stage, all, tally_), "") << "schedule " << run.schedule;
  }

  CallerHabits habits;

 private:
  Tally tally_;
  std::size_t accesses_max_ = 0;
};

// The first of two threads makes one access where the other makes several.
class SlowFirstThread final : public Chooser {
 public:
  explicit SlowFirstThread(std::size_t ratio) : ratio_(ratio) {}

  std::size_t choose(std::span<const std::size_t> threads, bool preempts) override {
    if (!preempts) return 0;
    const bool its_turn = turn_++ % (ratio_ + 1) == 0;
    return (threads.front() == 0) == its_turn ? 0 : 1;
  }

 private:
  std::size_t ratio_;
  std::size_t turn_ = 0;
};

// ---- Blocks ----

TEST_F(InterleavingTest, LookupAndTheEvictionOfItsLeaf) {
  explore([](Callers& callers) { callers.back()->publish("ab"); }, {[](Caller& caller) {
                                                                      caller.lookup("ab");
                                                                      caller.release(0);
                                                                    },
                                                                    [](Caller& caller) { caller.evict(1); }});
}

TEST_F(InterleavingTest, LookupAndTheEvictionOfAWholeBranch) {
  explore(
      [](Callers& callers) {
        callers.back()->publish("ab");
        callers.back()->publish("ac");  // hangs on the edge of ab
        callers.back()->lookup("ab");
        callers.back()->release(0);
      },
      {[](Caller& caller) { caller.lookup("ac"); }, [](Caller& caller) { caller.evict(2); }});
}

TEST_F(InterleavingTest, LookupAndAnInsertThatExtendsItsEnd) {
  explore([](Callers& callers) { callers.back()->publish("a"); },
          {[](Caller& caller) { caller.lookup("abc"); }, [](Caller& caller) { caller.publish("abc"); }});
}

TEST_F(InterleavingTest, LookupAndAnInsertOfTheSameNewPrompt) {
  explore({[](Caller& caller) {
             caller.lookup("ab");
             caller.peek("ab");
           },
           [](Caller& caller) { caller.insert("ab"); }});
}

TEST_F(InterleavingTest, LookupAndAnInsertThatBranchesOff) {
  explore([](Callers& callers) { callers.back()->publish("abc"); },
          {[](Caller& caller) { caller.lookup("abd"); }, [](Caller& caller) { caller.publish("abd"); }});
}

TEST_F(InterleavingTest, LookupAndOtherTokensInTheSamePlace) {
  explore([](Callers& callers) { callers.back()->publish("abcd"); }, {[](Caller& caller) { caller.lookup("abed"); },
                                                                      [](Caller& caller) {
                                                                        caller.evict(2);
                                                                        caller.publish("abef");
                                                                      }});
}

TEST_F(InterleavingTest, LookupAndAnotherEdgeUnderTheSameId) {
  explore([](Callers& callers) { callers.back()->publish("ab"); }, {[](Caller& caller) { caller.lookup("ab"); },
                                                                    [](Caller& caller) {
                                                                      caller.evict(2);
                                                                      caller.publish("b");
                                                                      caller.publish("ac");
                                                                    }});
}

TEST_F(InterleavingTest, LookupsThatEndWithinOneEdge) {
  explore([](Callers& callers) { callers.back()->publish("abcd"); }, {[](Caller& caller) { caller.lookup("ab"); },
                                                                      [](Caller& caller) {
                                                                        caller.lookup("ab");
                                                                        caller.release(0);
                                                                      }});
}

TEST_F(InterleavingTest, LookupsThatEndTogetherBesideAnEviction) {
  explore([](Callers& callers) { callers.back()->publish("ab"); },
          {[](Caller& caller) { caller.lookup("ab"); }, [](Caller& caller) { caller.lookup("ab"); },
           [](Caller& caller) { caller.evict(1); }});
}

TEST_F(InterleavingTest, ReleaseAndEviction) {
  explore(
      [](Callers& callers) {
        callers[0]->insert("ab");
        callers.back()->evict(1);  // finds it in use
      },
      {[](Caller& caller) { caller.release(0); }, [](Caller& caller) { caller.evict(2); }});
}

// An eviction chooses before it closes the gate: first what is looked up meanwhile, then what is released.
TEST_F(InterleavingTest, LookupOfWhatAnEvictionChose) {
  explore(
      [](Callers& callers) {
        for (const char* prompt : {"c", "a", "b"}) callers.back()->publish(prompt);
        callers.back()->evict(1);  // the others are in the queue now
      },
      {[](Caller& caller) {
         caller.lookup("a");
         caller.release(0);
       },
       [](Caller& caller) { caller.evict(1); }});
}

TEST_F(InterleavingTest, ReleaseOfWhatAnEvictionChose) {
  explore(
      [](Callers& callers) {
        for (const char* prompt : {"b", "a"}) callers.back()->publish(prompt);
        callers.back()->evict(1);
        callers[0]->lookup("a");
      },
      {[](Caller& caller) { caller.release(0); }, [](Caller& caller) { caller.evict(1); }});
}

TEST_F(InterleavingTest, LastReleasesByTokensAndByHandleBesideAnEviction) {
  explore(
      [](Callers& callers) {
        callers[0]->insert("a");
        callers[1]->acquire("a");
        callers.back()->evict(1);
      },
      {[](Caller& caller) { caller.release(0); }, [](Caller& caller) { caller.release_handle(0); },
       [](Caller& caller) { caller.evict(1); }});
}

TEST_F(InterleavingTest, ReleaseAndAnewLookupBesideEvictions) {
  explore([](Callers& callers) { callers[0]->insert("a"); }, {[](Caller& caller) {
                                                                caller.release(0);
                                                                caller.lookup("a");
                                                                caller.release(0);
                                                              },
                                                              [](Caller& caller) {
                                                                caller.evict(1);
                                                                caller.evict(1);
                                                              }});
}

TEST_F(InterleavingTest, ReleaseAndAnInsertThatMovesTheEnd) {
  explore([](Callers& callers) { callers[0]->insert("a"); }, {[](Caller& caller) { caller.release(0); },
                                                              [](Caller& caller) {
                                                                caller.publish("ab");
                                                                caller.evict(2);
                                                              }});
}

TEST_F(InterleavingTest, CountersAndAnEvictionOfSeveralBlocks) {
  explore(
      [](Callers& callers) {
        callers.back()->publish("ab");
        callers.back()->publish("b");
      },
      {[](Caller& caller) {
         caller.simple(CallKind::kCachedBlocks);
         caller.simple(CallKind::kCounters);
       },
       [](Caller& caller) { caller.evict(3); }});
}

TEST_F(InterleavingTest, PeeksAndAnEvictionOfSeveralBlocks) {
  explore(
      [](Callers& callers) {
        callers.back()->publish("a");
        callers.back()->publish("b");
      },
      {[](Caller& caller) {
         caller.peek("b");
         caller.peek("a");
       },
       [](Caller& caller) { caller.evict(2); }});
}

TEST_F(InterleavingTest, InsertsOfOnePrompt) {
  habits.disk_blocks = true;
  explore([](Callers& callers) { callers.back()->publish("a"); },
          {[](Caller& caller) { caller.insert("abc"); }, [](Caller& caller) { caller.insert("ab"); }});
}

TEST_F(InterleavingTest, LookupAndTheFirstDiskIds) {
  habits.disk_blocks = true;
  explore([](Callers& callers) { callers.back()->publish("a"); }, {[](Caller& caller) { caller.lookup("ab"); },
                                                                   [this](Caller& caller) {
                                                                     static_cast<void>(this);
                                                                     caller.publish("ab");
                                                                   }});
}

// The child of other tokens hangs where the one that is looked for would.
TEST_F(InterleavingTest, LookupAndAChildOfOtherTokens) {
  explore([](Callers& callers) { callers.back()->publish("ab"); }, {[](Caller& caller) { caller.lookup("abc"); },
                                                                    [](Caller& caller) {
                                                                      caller.evict(1);
                                                                      caller.publish("ade");
                                                                      caller.publish("adc");
                                                                    }});
}

TEST_F(InterleavingTest, LastReleasesOfTwoEdges) {
  explore(
      [](Callers& callers) {
        callers[0]->insert("a");
        callers[1]->insert("b");
      },
      {[](Caller& caller) { caller.release(0); }, [](Caller& caller) { caller.release(0); }});
}

// ---- Stamps ----

TEST_F(InterleavingTest, LookupsOfOneEndAndOneOfAnother) {
  explore(
      [](Callers& callers) {
        callers.back()->publish("a");
        callers.back()->publish("b");
      },
      {[](Caller& caller) { caller.lookup("a"); },
       [](Caller& caller) {
         caller.lookup("b");
         caller.lookup("a");
       }});
}

TEST_F(InterleavingTest, LookupsOfOnePlaceWithinAnEdgeAndOneOfAnother) {
  explore(
      [](Callers& callers) {
        callers.back()->publish("aa");
        callers.back()->publish("bb");
      },
      {[](Caller& caller) { caller.lookup("a"); },
       [](Caller& caller) {
         caller.lookup("b");
         caller.lookup("a");
         caller.evict(2);
       }});
}

// It does not see the insert, so its stamp is the older one.
TEST_F(InterleavingTest, LookupBeforeAnInsert) {
  explore([](Callers& callers) { callers.back()->publish("a"); }, {[](Caller& caller) {
                                                                     caller.lookup("a");
                                                                     caller.release(0);
                                                                     caller.peek("b");
                                                                   },
                                                                   [](Caller& caller) { caller.publish("b"); }});
}

// Index::read walks within its commit after eight walks that did not stand.
TEST_F(InterleavingTest, AReaderThatIsOvertakenAgainAndAgainEnds) {
  constexpr std::size_t kRatioMax = 40;
  constexpr int kChanges = 60;
  for (std::size_t ratio = 1; ratio <= kRatioMax && !HasFatalFailure(); ++ratio) {
    SlowFirstThread chooser(ratio);
    run_and_check([](Callers& callers) { callers.back()->publish("ab"); },
                  {[](Caller& caller) { caller.lookup("ab"); },
                   [](Caller& caller) {
                     for (int i = 0; i < kChanges; ++i) {
                       caller.evict(1);
                       caller.publish("ab");
                     }
                   }},
                  chooser);
  }
}

// ---- Handles ----

TEST_F(InterleavingTest, AcquireAndExtendBesideAnEviction) {
  explore([](Callers& callers) { callers.back()->publish("ab"); }, {[](Caller& caller) {
                                                                      caller.acquire("ab");
                                                                      caller.extend(0, "c");
                                                                    },
                                                                    [](Caller& caller) { caller.evict(1); }});
}

TEST_F(InterleavingTest, LookupAndAHandleThatMoves) {
  explore([](Callers& callers) { callers[1]->acquire("a"); }, {[](Caller& caller) { caller.lookup("ab"); },
                                                               [](Caller& caller) {
                                                                 caller.extend(0, "ab");
                                                                 caller.truncate(0, 1);
                                                                 caller.evict(1);
                                                               }});
}

// ---- Memory ----

TEST_F(InterleavingTest, LookupAndNewTablesOfChildren) {
  explore(
      [](Callers& callers) {
        for (const char* word : {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k"}) {
          callers.back()->publish(word);
        }
      },
      {[](Caller& caller) { caller.lookup("b"); },
       [](Caller& caller) {
         caller.publish("l");
         caller.publish("m");
         caller.evict(1);
       }});
}

// Chunks of edges are that small in this build (rewrite.cmake).
TEST_F(InterleavingTest, LookupAndTheLastEdgesGone) {
  explore(
      [](Callers& callers) {
        for (const char* word : {"a", "b", "c", "d", "e", "f"}) callers.back()->publish(word);
      },
      {[](Caller& caller) { caller.lookup("f"); },
       [](Caller& caller) {
         caller.evict(6);
         caller.publish("f");
       }});
}

TEST_F(InterleavingTest, LookupAndALargerDirectoryOfEdges) {
  constexpr std::size_t kFirstDirectory = 64;
  explore(
      [](Callers& callers) {
        for (std::size_t i = 0; i < kFirstDirectory - 1; ++i) {
          callers.back()->publish(std::string{static_cast<char>('a' + i / 8), static_cast<char>('a' + i % 8)});
        }
      },
      {[](Caller& caller) { caller.lookup("hg"); },
       [](Caller& caller) {
         caller.publish("y");
         caller.publish("z");
       }});
}

TEST_F(InterleavingTest, LookupAndAnEdgeThatMovesToNewMemory) {
  explore([](Callers& callers) { callers.back()->publish("ab"); }, {[](Caller& caller) { caller.lookup("abcd"); },
                                                                    [](Caller& caller) {
                                                                      caller.publish("abc");
                                                                      caller.publish("abcd");
                                                                      caller.evict(1);
                                                                    }});
}

TEST_F(InterleavingTest, LookupAndAnEdgeThatIsTrimmed) {
  explore([](Callers& callers) { callers.back()->publish("abcdef"); },
          {[](Caller& caller) { caller.lookup("abcdef"); },
           [](Caller& caller) {
             caller.evict(5);
             caller.publish("b");
             caller.publish("ac");
           }});
}

// ---- Clears ----

TEST_F(InterleavingTest, LookupAndClear) {
  habits.epochs = true;
  explore(
      [](Callers& callers) {
        callers.back()->publish("ab");
        callers.back()->put(CallKind::kPutPlain, "a");
      },
      {[](Caller& caller) {
         caller.lookup("ab");
         caller.release(0);
       },
       [](Caller& caller) { caller.simple(CallKind::kClearAdapter); }});
}

TEST_F(InterleavingTest, AHandleAndClear) {
  explore([](Callers& callers) { callers.back()->publish("a"); }, {[](Caller& caller) {
                                                                     caller.acquire("a");
                                                                     caller.extend(0, "b");
                                                                     caller.release_handle(0);
                                                                   },
                                                                   [](Caller& caller) {
                                                                     caller.simple(CallKind::kClearAll);
                                                                     caller.publish("a");
                                                                   }});
}

TEST_F(InterleavingTest, InsertsOfAnEpochAndClear) {
  habits.epochs = true;
  explore({[](Caller& caller) {
             caller.insert("a");
             caller.put(CallKind::kPutPlain, "a");
           },
           [](Caller& caller) { caller.simple(CallKind::kClearAdapter); }});
}

// ---- Snapshots ----

TEST_F(InterleavingTest, FindSnapshotAndPutsBelowAndAbove) {
  explore([](Callers& callers) { callers.back()->put(CallKind::kPutPlain, "a"); },
          {[](Caller& caller) { caller.find_snapshot("abc"); },
           [](Caller& caller) {
             caller.put(CallKind::kPutPlain, "abc");
             caller.put(CallKind::kPutPlain, "a");
           }});
}

TEST_F(InterleavingTest, FindSnapshotAndPutsOnNewBranches) {
  explore([](Callers& callers) { callers.back()->put(CallKind::kPutPlain, "ab"); },
          {[](Caller& caller) { caller.find_snapshot("ac"); },
           [](Caller& caller) {
             caller.put(CallKind::kPutPlain, "ac");
             caller.put(CallKind::kPutPlain, "a");
           }});
}

TEST_F(InterleavingTest, LookupAndAnInsertWithASnapshot) {
  explore([](Callers& callers) { callers[1]->lookup("ab"); },
          {[](Caller& caller) { caller.lookup("ab"); }, [](Caller& caller) { caller.insert_with_snapshot(0, ""); }});
}

TEST_F(InterleavingTest, LookupAndTablesOfSnapshotsThatGrow) {
  explore(
      [](Callers& callers) {
        callers.back()->publish("abc");
        callers.back()->put(CallKind::kPutPlain, "ab");
      },
      {[](Caller& caller) { caller.lookup("abc"); },
       [](Caller& caller) {
         caller.put(CallKind::kPutPlain, "abc");
         caller.put(CallKind::kPutPlain, "a");
       }});
}

TEST_F(InterleavingTest, FindSnapshotAndItsEviction) {
  explore([](Callers& callers) { callers.back()->put(CallKind::kPutPlain, "ab"); },
          {[](Caller& caller) {
             caller.find_snapshot("ab");
             caller.find_snapshot("ab");
           },
           [](Caller& caller) {
             caller.simple(CallKind::kEvictSnapshot);
             caller.put(CallKind::kPutPlain, "ac");
           }});
}

// The snapshot that it returns says that the lookup came after the other's, so its stamp has to be the newer one.
TEST_F(InterleavingTest, LookupWhoseSnapshotWasPutAfterAnotherLookup) {
  explore(
      [](Callers& callers) {
        callers.back()->publish("a");
        callers.back()->publish("b");
      },
      {[](Caller& caller) {
         caller.lookup("a");
         caller.release(0);
         caller.evict(1);
       },
       [](Caller& caller) {
         caller.lookup("b");
         caller.release(0);
         caller.put(CallKind::kPutPlain, "a");
       }});
}

TEST_F(InterleavingTest, LookupsThatStampOneSnapshot) {
  explore(
      [](Callers& callers) {
        callers.back()->put(CallKind::kPutPlain, "a");
        callers.back()->put(CallKind::kPutPlain, "b");
        callers.back()->publish("ac");
        callers.back()->publish("ad");
        callers.back()->publish("b");
      },
      {[](Caller& caller) { caller.lookup("ac"); },
       [](Caller& caller) {
         caller.lookup("b");
         caller.lookup("ad");
       }});
}

TEST_F(InterleavingTest, TailsOfOneSessionBesideItsLookup) {
  explore([](Callers& callers) { callers.back()->publish("ab"); }, {[](Caller& caller) { caller.lookup("ab", 0, 1); },
                                                                    [](Caller& caller) {
                                                                      caller.put(CallKind::kPutTail, "ab", 1);
                                                                      caller.put(CallKind::kPutSibling, "a", 1);
                                                                      caller.put(CallKind::kPutTail, "a", 1);
                                                                    }});
}

// ---- Pins ----

TEST_F(InterleavingTest, APinAndTheEvictionOfItsSnapshot) {
  explore([](Callers& callers) { callers.back()->put(CallKind::kPutPlain, "ab"); },
          {[](Caller& caller) {
             caller.find_pinned("ab");
             caller.unpin(0);
           },
           [](Caller& caller) {
             caller.simple(CallKind::kEvictSnapshot);
             caller.simple(CallKind::kEvictSnapshot);
           }});
}

TEST_F(InterleavingTest, AnAcquireThatPinsAndAPutThatReplacesItsSnapshot) {
  explore(
      [](Callers& callers) {
        callers.back()->publish("ab");
        callers.back()->put(CallKind::kPutPlain, "a");
      },
      {[](Caller& caller) {
         caller.acquire_pinned("ab", 3);
         caller.unpin(0);
       },
       [](Caller& caller) {
         caller.put(CallKind::kPutPlain, "a");
         caller.put(CallKind::kPutPlain, "a");
       }});
}

TEST_F(InterleavingTest, LastUnpinsOfOneSnapshotBesideItsReplacement) {
  explore(
      [](Callers& callers) {
        callers.back()->put(CallKind::kPutPlain, "a");
        callers[0]->find_pinned("a");
        callers[1]->find_pinned("a");
        callers.back()->simple(CallKind::kEvictSnapshot);  // passes it over
      },
      {[](Caller& caller) { caller.unpin(0); }, [](Caller& caller) { caller.unpin(0); },
       [](Caller& caller) { caller.put(CallKind::kPutPlain, "a"); }});
}

TEST_F(InterleavingTest, AnUnpinAndAClear) {
  explore(
      [](Callers& callers) {
        callers.back()->put(CallKind::kPutPlain, "a");
        callers[0]->find_pinned("a");
      },
      {[](Caller& caller) { caller.unpin(0); },
       [](Caller& caller) {
         caller.simple(CallKind::kClearAll);
         caller.put(CallKind::kPutPlain, "a");
       }});
}

TEST_F(InterleavingTest, SpillAndPromoteBesideAFind) {
  explore([](Callers& callers) { callers.back()->put(CallKind::kPutPlain, "ab"); },
          {[](Caller& caller) {
             caller.find_snapshot("ab");
             caller.find_snapshot("ab");
           },
           [](Caller& caller) {
             caller.evict_snapshot_to_tier(0);
             caller.promote(1);
           }});
}

// ---- Blocks in a store ----

// Match and stored blocks are from one moment: what an eviction takes off the one appears in the other.
TEST_F(InterleavingTest, AcquireWithStoredBlocksAgainstAnEvictionToTheStore) {
  explore([](Callers& callers) { callers[2]->publish("aab"); },
          {[](Caller& caller) { caller.acquire_pinned("aab", 100); },
           [](Caller& caller) { caller.evict_blocks_to_tier(2); }});
}

TEST_F(InterleavingTest, AcquireWithStoredBlocksAgainstAnInsertOverThem) {
  explore(
      [](Callers& callers) {
        callers[2]->publish("aab");
        callers[2]->evict_blocks_to_tier(2);
      },
      {[](Caller& caller) { caller.acquire_pinned("aab", 100); }, [](Caller& caller) { caller.publish("aab"); }});
}

TEST_F(InterleavingTest, AcquireWithStoredBlocksAgainstTheLossOfARecord) {
  explore(
      [](Callers& callers) {
        callers[2]->publish("aab");
        callers[2]->evict_blocks_to_tier(3);
      },
      {[](Caller& caller) { caller.acquire_pinned("aab", 100); }, [](Caller& caller) { caller.forget_key(1); }});
}

// Who returns the snapshot must not name the record that was lost before it was put. Neither makes a walk start again:
// the lost one has a record below it, which keeps the tokens.
TEST_F(InterleavingTest, AcquireWithStoredBlocksAgainstTheLossOfARecordAndThenASnapshot) {
  explore(
      [](Callers& callers) {
        callers[2]->publish("aab");
        callers[2]->evict_blocks_to_tier(2);
      },
      {[](Caller& caller) { caller.acquire_pinned("aab", 100); },
       [](Caller& caller) {
         caller.forget_key(1);
         caller.put(CallKind::kPutPlain, "a");
       }});
}

}  // namespace
}  // namespace cairn::testing
