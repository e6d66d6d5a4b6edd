// What can go wrong in a replay: the input, or the cache under test.
#ifndef CAIRN_REPLAY_ERRORS_H_
#define CAIRN_REPLAY_ERRORS_H_

#include <stdexcept>

namespace cairn::replay {

// One line of a trace is malformed; the message is the reason alone. The reader adds file and line, or skips it.
class BadLineError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The trace cannot be read on; the message names the file and, where there is one, the line.
class TraceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The cache broke a promise (a wrong block handed out, a reference lost), or the replay ran out of block ids.
class ReplayError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace cairn::replay

#endif  // CAIRN_REPLAY_ERRORS_H_
