#include "support/naive_policy_cache.h"

#include <algorithm>
#include <deque>
#include <stdexcept>
#include <utility>

namespace cairn::testing {
namespace {

using Policy = NaivePolicyCache::Policy;
using Rank = std::pair<std::uint64_t, std::uint64_t>;

template <class RankOf>
NaiveBlock* least(const std::vector<NaiveBlock*>& blocks, RankOf rank_of) {
  const auto found = std::ranges::min_element(blocks, {}, [&](const NaiveBlock* block) { return rank_of(*block); });
  return found == blocks.end() ? nullptr : *found;
}

std::vector<NaiveBlock*> only(std::vector<NaiveBlock*> blocks, bool kept) {
  std::erase_if(blocks, [&](const NaiveBlock* block) { return block->kept != kept; });
  return blocks;
}

void keep_with_all_above(NaiveBlock* block) {
  for (; block->parent != nullptr; block = block->parent) block->kept = true;
}

class Lru final : public Policy {
 public:
  NaiveBlock* victim(NaivePolicyCache& cache) override {
    return least(cache.evictable_leaves(), [](const NaiveBlock& block) { return block.stamp; });
  }
};

class Lfu final : public Policy {
 public:
  NaiveBlock* victim(NaivePolicyCache& cache) override {
    const auto key = [](const NaiveBlock& block) { return Rank{1 + block.hits + block.age, block.stamp}; };
    NaiveBlock* block = least(cache.evictable_leaves(), key);
    if (block != nullptr) age_ = std::max(age_, key(*block).first);
    return block;
  }
  void used(NaiveBlock& block) override { block.age = age_; }

 private:
  std::uint64_t age_ = 0;
};

class Slru final : public Policy {
 public:
  NaiveBlock* victim(NaivePolicyCache& cache) override {
    const auto by_use = [](const NaiveBlock& block) { return block.stamp; };
    for (;;) {
      const auto guarded = only(cache.evictable_leaves(), true);
      const auto trial = only(cache.evictable_leaves(), false);
      if (5 * cache.count([](const NaiveBlock& block) { return block.kept; }) > 4 * cache.size() && !guarded.empty()) {
        NaiveBlock* block = least(guarded, by_use);
        block->kept = false;
        block->demoted_at = cache.now();
        block->demotion = ++demotions_;
        NaivePolicyCache::forget_hits(*block);
        continue;
      }
      if (trial.empty()) return least(guarded, by_use);
      NaiveBlock* block = least(trial, [](const NaiveBlock& b) {
        return b.demotion > 0 && b.demoted_at >= b.stamp ? Rank{b.demoted_at, b.demotion} : Rank{b.stamp, 0};
      });
      if (block->hits == 0) return block;
      NaivePolicyCache::forget_hits(*block);
      keep_with_all_above(block);
    }
  }

 private:
  std::uint64_t demotions_ = 0;
};

class S3Fifo final : public Policy {
 public:
  NaiveBlock* victim(NaivePolicyCache& cache) override {
    size_ = cache.size();
    for (;;) {
      const auto small = only(cache.evictable_leaves(), false);
      const auto main = only(cache.evictable_leaves(), true);
      const bool too_many = cache.count([](const NaiveBlock& block) { return !block.kept; }) > cache.size() / 10;
      const bool from_main = !main.empty() && (small.empty() || !too_many);
      NaiveBlock* block = least(from_main ? main : small, [](const NaiveBlock& b) { return b.place; });
      if (block == nullptr) return nullptr;
      if (!from_main) {
        if (block->hits < 2) return block;
        keep_with_all_above(block);
      } else {
        block->rounds = std::min<std::uint64_t>(3, block->rounds + block->hits);
        if (block->rounds == 0) return block;
        --block->rounds;
      }
      block->place = ++last_place_;
      NaivePolicyCache::forget_hits(*block);
    }
  }
  void inserted(NaiveBlock& end, std::size_t count) override {
    end.place = ++last_place_;
    NaiveBlock* block = &end;
    for (; count > 0; --count, block = block->parent) {
      if (ghosts_.erase(name(*block)) > 0) keep_with_all_above(block);
    }
  }
  void gone(const NaiveBlock& block) override {
    if (block.kept) return;
    ghosts_[name(block)] = ++evictions_;
    last_.emplace_back(name(block), evictions_);
    for (; last_.size() > size_; last_.pop_front()) {
      const auto ghost = ghosts_.find(last_.front().first);
      if (ghost != ghosts_.end() && ghost->second == last_.front().second) ghosts_.erase(ghost);
    }
  }
  void uncovered(NaiveBlock& block, const NaiveBlock& child) override {
    block.place = child.place;
    block.rounds = 0;
  }

 private:
  // By its token and its depth, as the real one.
  using Name = std::pair<TokenId, std::size_t>;
  static Name name(const NaiveBlock& block) {
    std::size_t depth = 0;
    for (const NaiveBlock* above = &block; above->parent != nullptr; above = above->parent) ++depth;
    return {block.token, depth};
  }

  std::deque<std::pair<Name, std::uint64_t>> last_;  // evictions from the small queue, with their numbers
  std::map<Name, std::uint64_t> ghosts_;             // what they gave up and did not come back
  std::uint64_t evictions_ = 0;
  std::uint64_t last_place_ = 0;
  std::size_t size_ = 0;
};

class Priority final : public Policy {
 public:
  NaiveBlock* victim(NaivePolicyCache& cache) override {
    return least(cache.evictable_leaves(), [&](const NaiveBlock& block) {
      const bool counts = block.expires > cache.time();
      return std::pair(counts ? block.priority : 0, block.stamp);
    });
  }
};

// Whatever it is told, if that can go.
class Told final : public Policy {
 public:
  explicit Told(std::deque<BlockId>& told) : told_(told) {}

  NaiveBlock* victim(NaivePolicyCache& cache) override {
    if (told_.empty()) return nullptr;
    const auto leaves = cache.evictable_leaves();
    const auto found = std::ranges::find(leaves, told_.front(), [](const NaiveBlock* block) { return block->block; });
    told_.pop_front();
    return found == leaves.end() ? nullptr : *found;
  }

 private:
  std::deque<BlockId>& told_;
};

std::unique_ptr<Policy> make(const std::string& name, std::deque<BlockId>& told) {
  if (name == "told") return std::make_unique<Told>(told);
  if (name == "lru") return std::make_unique<Lru>();
  if (name == "lfu") return std::make_unique<Lfu>();
  if (name == "slru") return std::make_unique<Slru>();
  if (name == "s3fifo") return std::make_unique<S3Fifo>();
  if (name == "priority") return std::make_unique<Priority>();
  throw std::invalid_argument("no naive policy " + name);
}

void visit(NaiveBlock& block, const std::function<void(NaiveBlock&)>& with) {
  for (const auto& [token, child] : block.children) {
    with(*child);
    visit(*child, with);
  }
}

}  // namespace

NaivePolicyCache::NaivePolicyCache(const std::string& policy) : policy_(make(policy, told_)) {}

std::vector<NaiveBlock*> NaivePolicyCache::path(std::span<const TokenId> tokens) {
  std::vector<NaiveBlock*> path;
  for (NaiveBlock* at = &root_; path.size() < tokens.size();) {
    const auto child = at->children.find(tokens[path.size()]);
    if (child == at->children.end()) break;
    at = child->second.get();
    path.push_back(at);
  }
  return path;
}

std::size_t NaivePolicyCache::lookup(std::span<const TokenId> tokens) {
  const auto blocks = path(tokens);
  if (blocks.empty()) return 0;
  ++now_;
  for (NaiveBlock* block : blocks) {
    ++block->running;
    ++block->hits;
    block->stamp = now_;
    policy_->used(*block);
  }
  return blocks.size();
}

void NaivePolicyCache::insert(std::span<const TokenId> tokens, std::span<const BlockId> blocks, std::size_t held) {
  const std::size_t there = path(tokens).size();
  NaiveBlock* at = &root_;
  ++now_;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    std::unique_ptr<NaiveBlock>& child = at->children[tokens[i]];
    if (!child) {
      child = std::make_unique<NaiveBlock>();
      child->parent = at;
      child->token = tokens[i];
      child->block = blocks[i];
      ++size_;
    }
    at = child.get();
    if (i >= held) ++at->running;
    at->stamp = now_;
    policy_->used(*at);
  }
  if (there < tokens.size()) policy_->inserted(*at, tokens.size() - there);
}

void NaivePolicyCache::release(std::span<const TokenId> tokens) {
  for (NaiveBlock* block : path(tokens)) --block->running;
}

std::vector<BlockId> NaivePolicyCache::evict(std::size_t count) {
  std::vector<BlockId> evicted;
  while (evicted.size() < count) {
    NaiveBlock* block = policy_->victim(*this);
    if (block == nullptr) break;
    evicted.push_back(block->block);
    policy_->gone(*block);
    NaiveBlock* parent = block->parent;
    const std::unique_ptr<NaiveBlock> gone = std::move(parent->children[block->token]);
    parent->children.erase(gone->token);
    --size_;
    if (parent->parent != nullptr && parent->children.empty()) policy_->uncovered(*parent, *gone);
  }
  return evicted;
}

void NaivePolicyCache::mark(std::span<const TokenId> tokens, std::size_t from, int priority, std::uint64_t expires) {
  const auto blocks = path(tokens);
  for (std::size_t i = from; i < blocks.size(); ++i) {
    blocks[i]->priority = priority;
    blocks[i]->expires = expires;
  }
}

std::vector<NaiveBlock*> NaivePolicyCache::evictable_leaves() {
  std::vector<NaiveBlock*> leaves;
  visit(root_, [&](NaiveBlock& block) {
    if (block.children.empty() && block.running == 0) leaves.push_back(&block);
  });
  return leaves;
}

std::size_t NaivePolicyCache::count(const std::function<bool(const NaiveBlock&)>& counts) {
  std::size_t count = 0;
  visit(root_, [&](NaiveBlock& block) { count += counts(block) ? 1 : 0; });
  return count;
}

// Those of the blocks above went through it, too.
void NaivePolicyCache::forget_hits(NaiveBlock& block) {
  const std::uint64_t forgotten = block.hits;
  for (NaiveBlock* above = &block; above->parent != nullptr; above = above->parent) above->hits -= forgotten;
}

}  // namespace cairn::testing
