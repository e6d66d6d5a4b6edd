// Calls that break a rule which the cache checks.
#ifndef CAIRN_TESTS_SUPPORT_INVALID_CALLS_H_
#define CAIRN_TESTS_SUPPORT_INVALID_CALLS_H_

#include <span>
#include <vector>

#include "support/operation_decoder.h"
#include "support/paired_caches.h"

namespace cairn::testing {

// Makes one such call on both caches and throws Violation unless both refuse it alike. That nothing has changed
// shows in the comparisons that follow. `keys` are tier keys handed out lately.
void call_invalidly(PairedCaches& caches, const Operation& operation, const std::vector<TokenId>& tokens,
                    const ProgramSettings& settings, std::span<const TierKey> keys);

}  // namespace cairn::testing

#endif  // CAIRN_TESTS_SUPPORT_INVALID_CALLS_H_
