// Hash tables keyed by ids, and how to make room in a container before a step that must not fail.
#ifndef CAIRN_BASE_CONTAINERS_H_
#define CAIRN_BASE_CONTAINERS_H_

#include <algorithm>
#include <boost/unordered/unordered_flat_map.hpp>
#include <boost/unordered/unordered_flat_set.hpp>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/hash.h"

namespace cairn {

template <class Value>
using IdMap = boost::unordered_flat_map<std::uint64_t, Value, IdHash>;
using IdSet = boost::unordered_flat_set<std::uint64_t, IdHash>;

// After it, `extra` insertions don't allocate. Throws std::bad_alloc and changes nothing that can be seen. Growth is
// geometric; a plain reserve(size() + extra) would rehash, or even shrink the table, at every call.
template <class Table>
void make_room(Table& table, std::size_t extra) {
  const std::size_t wanted = table.size() + extra;
  if (wanted <= table.max_load()) return;
  table.reserve(std::max(wanted, 2 * table.size()));
  // Erasing lowers what a table takes before it rehashes, and then the same capacity is not the same room.
  if (wanted > table.max_load()) table.rehash(2 * table.bucket_count());
}

template <class T>
void make_room(std::vector<T>& items, std::size_t extra) {
  const std::size_t wanted = items.size() + extra;
  if (wanted > items.capacity()) items.reserve(std::max(wanted, 2 * items.capacity()));
}

}  // namespace cairn

#endif  // CAIRN_BASE_CONTAINERS_H_
