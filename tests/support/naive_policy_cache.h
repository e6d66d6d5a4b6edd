// Eviction policies in their plainest form: one node for each block, each fact on each node, and for each block to
// evict a look at all leaves. What tests compare the real policies with; nothing is shared with src/.
//
// Blocks of one token, one adapter. Not thread-safe.
#ifndef CAIRN_TESTS_SUPPORT_NAIVE_POLICY_CACHE_H_
#define CAIRN_TESTS_SUPPORT_NAIVE_POLICY_CACHE_H_

#include <cairn/prefix_cache.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace cairn::testing {

struct NaiveBlock {
  NaiveBlock* parent = nullptr;
  TokenId token = 0;
  BlockId block = 0;
  std::map<TokenId, std::unique_ptr<NaiveBlock>> children;
  std::size_t running = 0;  // sequences that use it

  // What any policy may look at.
  std::uint64_t stamp = 0;  // of the last call that went through it
  std::uint64_t hits = 0;   // lookups that went through it, as far as they are not forgotten

  // A policy's own.
  bool kept = false;         // protected, or in the main queue
  std::uint64_t place = 0;   // in a queue
  std::uint64_t rounds = 0;  // left in it
  std::uint64_t age = 0;     // of the cache at its last use
  std::uint64_t demoted_at = 0;
  std::uint64_t demotion = 0;
  int priority = 0;
  std::uint64_t expires = ~std::uint64_t{0};
};

class NaivePolicyCache {
 public:
  // What is to go next, of the leaves in nobody's use; null if there are none. It may change its own facts of blocks.
  class Policy {
   public:
    Policy() = default;
    Policy(const Policy&) = delete;
    Policy& operator=(const Policy&) = delete;
    virtual ~Policy() = default;
    virtual NaiveBlock* victim(NaivePolicyCache& cache) = 0;
    virtual void used(NaiveBlock& block) { static_cast<void>(block); }  // or inserted
    virtual void inserted(NaiveBlock& end, std::size_t count) { static_cast<void>(end), static_cast<void>(count); }
    virtual void gone(const NaiveBlock& block) { static_cast<void>(block); }
    virtual void uncovered(NaiveBlock& block, const NaiveBlock& child) {
      static_cast<void>(block), static_cast<void>(child);
    }
  };

  // "lru", "lfu", "slru", "s3fifo", "priority"; or "told": what tell() names next.
  explicit NaivePolicyCache(const std::string& policy);

  std::size_t lookup(std::span<const TokenId> tokens);  // how many are cached
  // One more sequence that uses all of them; it used the first `held` already.
  void insert(std::span<const TokenId> tokens, std::span<const BlockId> blocks, std::size_t held);
  void release(std::span<const TokenId> tokens);
  std::vector<BlockId> evict(std::size_t count);
  void tell(std::span<const BlockId> victims) { told_.assign(victims.begin(), victims.end()); }
  void mark(std::span<const TokenId> tokens, std::size_t from, int priority, std::uint64_t expires);

  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::uint64_t now() const { return now_; }
  [[nodiscard]] std::uint64_t time() const { return time_; }
  void set_time(std::uint64_t time) { time_ = time; }
  [[nodiscard]] std::vector<NaiveBlock*> evictable_leaves();
  [[nodiscard]] std::size_t count(const std::function<bool(const NaiveBlock&)>& counts);
  static void forget_hits(NaiveBlock& block);

 private:
  [[nodiscard]] std::vector<NaiveBlock*> path(std::span<const TokenId> tokens);

  std::deque<BlockId> told_;
  std::unique_ptr<Policy> policy_;
  NaiveBlock root_;
  std::size_t size_ = 0;
  std::uint64_t now_ = 0;   // stamps
  std::uint64_t time_ = 0;  // by the clock
};

}  // namespace cairn::testing

#endif  // CAIRN_TESTS_SUPPORT_NAIVE_POLICY_CACHE_H_
