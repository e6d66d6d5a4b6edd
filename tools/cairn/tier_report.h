// What `cairn tier` has found in a directory, as text and as JSON.
#ifndef CAIRN_TOOLS_TIER_REPORT_H_
#define CAIRN_TOOLS_TIER_REPORT_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "tier/inspect.h"

namespace cairn::tool {

struct TierReport {
  std::string directory;
  const DirectoryInspector* inspector = nullptr;
  bool list_records = false;
  // If they were read.
  struct Verification {
    std::size_t whole = 0;
    std::size_t gone = 0;  // meanwhile, in a directory that is in use
    std::vector<RecordHeader> damaged;
  };
  std::optional<Verification> verification;

  // Damaged records, those whose header tells no more what they were included.
  [[nodiscard]] std::size_t damaged() const;
};

[[nodiscard]] std::string text(const TierReport& report);
[[nodiscard]] std::string json(const TierReport& report);

}  // namespace cairn::tool

#endif  // CAIRN_TOOLS_TIER_REPORT_H_
