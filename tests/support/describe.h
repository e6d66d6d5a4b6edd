// Answers of a prefix cache as text: for comparing two caches, and for saying how they differ.
#ifndef CAIRN_TESTS_SUPPORT_DESCRIBE_H_
#define CAIRN_TESTS_SUPPORT_DESCRIBE_H_

#include <cairn/radix_tree.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace cairn::testing {

std::string describe(std::monostate);
std::string describe(bool value);
std::string describe(std::uint64_t value);
std::string describe(const std::optional<std::uint64_t>& value);
std::string describe(std::span<const std::uint32_t> values);
std::string describe(const std::vector<std::uint32_t>& values);
std::string describe(const std::vector<std::uint64_t>& values);
std::string describe(const PrefixMatch& match);
std::string describe(const InsertAcquired& acquired);
std::string describe(const SnapshotInsert& insert);
std::string describe(const RadixTree::EpochInsert& insert);
std::string describe(const RadixTree::EpochSnapshotInsert& insert);
std::string describe(const EvictedBlocks& evicted);
std::string describe(const std::optional<TierEvict>& evict);
std::string describe(const SnapshotRef& ref);
std::string describe(const RadixTree::Peek& peek);
std::string describe(const Cleared& cleared);
std::string describe(const BlockSpills& spills);
std::string describe(const std::optional<RadixTree::SpilledSnapshot>& spilled);
// A match, and the keys of the stored blocks after it.
using StoredMatch = std::pair<PrefixMatch, std::vector<TierKey>>;
std::string describe(const StoredMatch& match);
std::string describe(const RadixTreeCounters& counters);

// Sorts what comes in no promised order: the lists of a clear, and lists of slots or keys.
template <class T>
void sort_unordered(T& /*answer*/) {}
void sort_unordered(Cleared& cleared);
void sort_unordered(std::vector<std::uint64_t>& values);

}  // namespace cairn::testing

#endif  // CAIRN_TESTS_SUPPORT_DESCRIBE_H_
