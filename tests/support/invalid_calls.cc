#include "support/invalid_calls.h"

#include <array>

namespace cairn::testing {
namespace {

class InvalidCalls {
 public:
  InvalidCalls(PairedCaches& caches, const Operation& operation, const std::vector<TokenId>& tokens,
               const ProgramSettings& settings)
      : caches_(caches),
        adapter_(operation.adapter_id()),
        session_(operation.session()),
        tokens_(tokens),
        block_size_(settings.block_size),
        wrong_block_size_(operation.table % 2 == 0 ? 0 : settings.block_size + 1),
        blocks_(tokens.size() / settings.block_size + 1, 77),
        wrong_disk_blocks_(blocks_.size() + 1, 88) {}

  template <class Call>
  void refuse(const char* what, Call call) {
    const auto answer = caches_.both([what] { return std::string(what); }, call);
    if (answer) throw Violation(std::string(what) + " was not refused");
  }

  void wrong_block_size(std::uint8_t which);
  void wrong_disk_ids(std::uint8_t which);
  void matched_beyond_end(std::uint8_t which);
  void snapshot_at_zero(std::uint8_t which);
  void taken_slot(std::uint8_t which, std::span<const TierKey> keys);
  void wrong_handle(std::uint8_t which);

 private:
  // Any slot will do where the call is refused for another reason.
  static constexpr SnapshotId kUnusedSlot = 1'000'000;

  PairedCaches& caches_;
  AdapterId adapter_;
  SessionHash session_;
  const std::vector<TokenId>& tokens_;
  std::size_t block_size_;
  std::size_t wrong_block_size_;
  std::vector<BlockId> blocks_;
  std::vector<DiskBlockId> wrong_disk_blocks_;
};

void InvalidCalls::wrong_block_size(std::uint8_t which) {
  const std::size_t size = wrong_block_size_;
  switch (which % 7) {
    case 0:
      return refuse("lookup, block_size", [&](auto& c) { return c.lookup(tokens_, size, session_, adapter_); });
    case 1:
      return refuse("insert, block_size", [&](auto& c) { return c.insert(tokens_, blocks_, {}, size, 0, adapter_); });
    case 2:
      return refuse("release, block_size", [&](auto& c) { c.release(tokens_, size, adapter_); });
    case 3:
      return refuse("release_matched, block_size", [&](auto& c) { c.release_matched(tokens_, size, 0, adapter_); });
    case 4:
      return refuse("peek, block_size",
                    [&](auto& c) { return std::uint64_t{c.peek_matched_tokens(tokens_, size, adapter_)}; });
    case 5:
      return refuse("insert_with_snapshot, block_size", [&](auto& c) {
        return c.insert_with_snapshot(tokens_, blocks_, {}, size, kUnusedSlot, session_, 0, adapter_);
      });
    default:
      return refuse("insert_intermediate_snapshot, block_size", [&](auto& c) {
        return c.insert_intermediate_snapshot(tokens_, blocks_, {}, size, kUnusedSlot, session_, 0, adapter_);
      });
  }
}

void InvalidCalls::wrong_disk_ids(std::uint8_t which) {
  if (which % 2 == 0) wrong_disk_blocks_.resize(blocks_.size() - 1);
  if (wrong_disk_blocks_.empty()) wrong_disk_blocks_.resize(blocks_.size() + 1);
  switch (which / 2 % 3) {
    case 0:
      return refuse("insert, disk_block_ids",
                    [&](auto& c) { return c.insert(tokens_, blocks_, wrong_disk_blocks_, block_size_, 0, adapter_); });
    case 1:
      return refuse("insert_with_snapshot, disk_block_ids", [&](auto& c) {
        return c.insert_with_snapshot(tokens_, blocks_, wrong_disk_blocks_, block_size_, kUnusedSlot, session_, 0,
                                      adapter_);
      });
    default:
      return refuse("insert_intermediate_snapshot, disk_block_ids", [&](auto& c) {
        return c.insert_intermediate_snapshot(tokens_, blocks_, wrong_disk_blocks_, block_size_, kUnusedSlot, session_,
                                              0, adapter_);
      });
  }
}

void InvalidCalls::matched_beyond_end(std::uint8_t which) {
  const std::size_t beyond = which >= 128 ? ~std::size_t{0} : tokens_.size() + 1;
  switch (which % 4) {
    case 0:
      return refuse("insert, matched_tokens",
                    [&](auto& c) { return c.insert(tokens_, blocks_, {}, block_size_, beyond, adapter_); });
    case 1:
      return refuse("release_matched, matched_tokens",
                    [&](auto& c) { c.release_matched(tokens_, block_size_, beyond, adapter_); });
    case 2:
      return refuse("insert_with_snapshot, matched_tokens", [&](auto& c) {
        return c.insert_with_snapshot(tokens_, blocks_, {}, block_size_, kUnusedSlot, session_, beyond, adapter_);
      });
    default:
      return refuse("insert_intermediate_snapshot, matched_tokens", [&](auto& c) {
        return c.insert_intermediate_snapshot(tokens_, blocks_, {}, block_size_, kUnusedSlot, session_, beyond,
                                              adapter_);
      });
  }
}

void InvalidCalls::snapshot_at_zero(std::uint8_t which) {
  switch (which % 4) {
    case 0:
      return refuse("insert_with_snapshot, no tokens", [&](auto& c) {
        return c.insert_with_snapshot({}, blocks_, {}, block_size_, kUnusedSlot, session_, 0, adapter_);
      });
    case 1:
      return refuse("insert_intermediate_snapshot, no tokens", [&](auto& c) {
        return c.insert_intermediate_snapshot({}, blocks_, {}, block_size_, kUnusedSlot, session_, 0, adapter_);
      });
    case 2:
      return refuse("insert_tail_snapshot, no tokens",
                    [&](auto& c) { return c.insert_tail_snapshot({}, kUnusedSlot, session_, adapter_); });
    default:
      return refuse("insert_tail_sibling_snapshot, no tokens",
                    [&](auto& c) { return c.insert_tail_sibling_snapshot({}, kUnusedSlot, session_, adapter_); });
  }
}

void InvalidCalls::taken_slot(std::uint8_t which, std::span<const TierKey> keys) {
  const auto taken = caches_.model().taken_slots();
  if (taken.empty() || tokens_.empty()) return;
  const SnapshotId slot = taken[which / 5 % taken.size()];
  switch (which % 5) {
    case 0:
      return refuse("insert_with_snapshot, taken slot", [&](auto& c) {
        return c.insert_with_snapshot(tokens_, blocks_, {}, block_size_, slot, session_, 0, adapter_);
      });
    case 1:
      return refuse("insert_intermediate_snapshot, taken slot", [&](auto& c) {
        return c.insert_intermediate_snapshot(tokens_, blocks_, {}, block_size_, slot, session_, 0, adapter_);
      });
    case 2:
      return refuse("insert_tail_snapshot, taken slot",
                    [&](auto& c) { return c.insert_tail_snapshot(tokens_, slot, session_, adapter_); });
    case 3:
      return refuse("insert_tail_sibling_snapshot, taken slot",
                    [&](auto& c) { return c.insert_tail_sibling_snapshot(tokens_, slot, session_, adapter_); });
    default:
      // Refused if the key is alive; false if it is dead.
      for (const TierKey key : keys) {
        caches_.both([&] { return call_text("promote_snapshot", key, slot); },
                     [&](auto& cache) { return cache.promote_snapshot(key, slot); });
      }
  }
}

// Handles are the tree's alone: the model has no say here.
void InvalidCalls::wrong_handle(std::uint8_t which) {
  RadixTree& tree = caches_.tree();
  RadixTree other({.block_size = block_size_});
  PrefixHandle of_other = other.acquire(tokens_, session_, adapter_).handle;
  PrefixHandle none;
  PrefixHandle own = tree.acquire({}, session_, adapter_).handle;
  caches_.model().acquire({}, session_, adapter_);
  const auto must_throw = [&](const char* what, auto call) {
    if (attempt(call, tree)) throw Violation(std::string(what) + " was not refused");
  };
  const std::array<PrefixHandle*, 2> wrong = {&of_other, &none};
  PrefixHandle& handle = *wrong[which / 4 % 2];
  switch (which % 4) {
    case 0:
      must_throw("extend, handle", [&](RadixTree& t) { return t.extend(handle, tokens_, blocks_, {}); });
      break;
    case 1:
      must_throw("truncate, handle", [&](RadixTree& t) { t.truncate(handle, 0); });
      break;
    case 2:
      must_throw("release, handle", [&](RadixTree& t) { t.release(of_other); });
      tree.release(none);
      break;
    default:
      must_throw("truncate, tokens", [&](RadixTree& t) { t.truncate(own, block_size_); });
      must_throw("extend, disk_block_ids",
                 [&](RadixTree& t) { return t.extend(own, tokens_, blocks_, wrong_disk_blocks_); });
  }
  tree.release(own);
  other.release(of_other);
}

}  // namespace

void call_invalidly(PairedCaches& caches, const Operation& operation, const std::vector<TokenId>& tokens,
                    const ProgramSettings& settings, std::span<const TierKey> keys) {
  InvalidCalls calls(caches, operation, tokens, settings);
  const auto which = static_cast<std::uint8_t>(operation.extra / 8 * 9 + operation.cut);
  switch (operation.extra % 8) {
    case 0:
      return calls.wrong_block_size(which);
    case 1:
      return calls.wrong_disk_ids(which);
    case 2:
      return calls.matched_beyond_end(which);
    case 3:
      return calls.snapshot_at_zero(which);
    case 4:
    case 5:
      return calls.taken_slot(which, keys);
    default:
      return calls.wrong_handle(which);
  }
}

}  // namespace cairn::testing
