#include "cairn/spill_store.h"

#include <string>

#include "base/refuse.h"
#include "tier/put_rules.h"
#include "tier/record.h"

namespace cairn {

SpillStore::~SpillStore() = default;

std::string to_string(const ModelFingerprint& fingerprint) {
  return "weights=" + fingerprint.weights + ", kv_type=" + fingerprint.kv_type + ", layout=" + fingerprint.layout +
         ", ranks=" + std::to_string(fingerprint.ranks);
}

bool check_put(const SpillBuffers& buffers, TierKey key, const RecordLineage& lineage, const SpillBufferPtr& buffer) {
  if (key == 0) refuse("put: key", "0 names no record");
  if (buffer == nullptr) refuse("put: buffer", "is null");
  const std::size_t found = buffer->record().size();
  const std::size_t wanted = buffers.record_bytes(lineage.kind);
  if (wanted == 0 || found != wanted) {
    refuse("put: buffer",
           "has " + std::to_string(found) + " bytes, but records of this kind have " + std::to_string(wanted));
  }
  return fits_header(buffers.layout(), lineage);
}

}  // namespace cairn
