// What the child that is killed tells its parent through a pipe, as it happens.
#ifndef CAIRN_TESTS_TIER_CRASH_KILL_LOG_H_
#define CAIRN_TESTS_TIER_CRASH_KILL_LOG_H_

#include <cairn/prefix_cache.h>

#include <cstdint>

namespace cairn::testing {

// Each is written with one write(2), shorter than PIPE_BUF: there whole or not at all.
struct KillLogEntry {
  enum class What : std::uint64_t {
    kOpening,       // about to open the directory
    kOpened,        // key: the store's first_key()
    kPut,           // about to put the key, of which no put is under way
    kRefused,       // that put was not accepted because too much is under way
    kAcknowledged,  // `done(true)` of that put
    kDropped,       // `done(false)` of that put
    kErase,         // about to erase the key
    kFlushed,       // flush has returned true; nothing is put or erased meanwhile
    kLost,          // take_lost has told the key
    kLostTold,      // key: how many puts are under way, take_lost having told all above
    kWrong,         // a get has found other bytes under the key
    kUnexpected,    // key: which PutResult a put had
  };
  What what;
  TierKey key;
};
static_assert(sizeof(KillLogEntry) == 16);

}  // namespace cairn::testing

#endif  // CAIRN_TESTS_TIER_CRASH_KILL_LOG_H_
