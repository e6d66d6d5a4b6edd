// Between the ids of this process and what records say.
#ifndef CAIRN_ENGINE_LINEAGE_H_
#define CAIRN_ENGINE_LINEAGE_H_

#include <optional>
#include <span>
#include <vector>

#include "cairn/spill_store.h"
#include "engine/names.h"

namespace cairn {

// Fills in the names that the ids stand for. False if one has been forgotten: then nobody can find what it is for.
// Throws std::bad_alloc.
[[nodiscard]] bool describe(AdapterId adapter, std::span<const TokenId> tokens, const AdapterTable& adapters,
                            const MediaTable& media, RecordLineage& lineage);

// The reverse: gives the names ids, which are remembered as those of requests that have ended.
struct Identified {
  AdapterId adapter = 0;
  std::vector<TokenId> tokens;
};
// None if a table has no id left, or the record contradicts itself. Throws std::bad_alloc.
[[nodiscard]] std::optional<Identified> identify(const RecordLineage& lineage, AdapterTable& adapters,
                                                 MediaTable& media);

}  // namespace cairn

#endif  // CAIRN_ENGINE_LINEAGE_H_
