// What every store asks of a put.
#ifndef CAIRN_TIER_PUT_RULES_H_
#define CAIRN_TIER_PUT_RULES_H_

#include <cairn/spill_store.h>

namespace cairn {

// Throws std::invalid_argument: key 0; no buffer; one of another size than records of this kind have. False if the
// lineage does not fit into the header.
[[nodiscard]] bool check_put(const SpillBuffers& buffers, TierKey key, const RecordLineage& lineage,
                             const SpillBufferPtr& buffer);

}  // namespace cairn

#endif  // CAIRN_TIER_PUT_RULES_H_
