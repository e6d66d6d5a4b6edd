// Runs programs of operations on the real index: in lockstep with the naive model, or with callers that break the
// protocol.
#ifndef CAIRN_TESTS_SUPPORT_LOCKSTEP_H_
#define CAIRN_TESTS_SUPPORT_LOCKSTEP_H_

#include <cstddef>
#include <iosfwd>
#include <string>

#include "support/operation_decoder.h"

namespace cairn::testing {

class FaultInjector;

struct RunReport {
  std::size_t calls = 0;      // calls on the index, those of checks not counted
  std::size_t operation = 0;  // if it failed: the index of the operation; one past the last for the end of the run
  std::string failure;        // empty: all as it should be
};

// Protocol-following callers on RadixTree and on NaivePrefixCache at once. Every answer must be the same (the order
// of evicted blocks too), the ledgers of blocks and slots must hold, validate() must have nothing to say, and after
// everybody has released, everything can be evicted. Prints each call and answer to `trace` if there is one. With
// `faults`, allocations fail in each call until it is done.
RunReport run_in_lockstep(const Program& program, std::ostream* trace = nullptr, FaultInjector* faults = nullptr);

// Callers that release what they do not hold, on RadixTree alone. Answers are not compared; the ledgers must hold,
// validate() must have nothing to say, a release while nobody holds anything is counted as one protocol error, and a
// clear leaves nothing.
RunReport run_breaking_protocol(const Program& program, std::ostream* trace = nullptr);

// The one of the two that the program asks for.
RunReport run_program(const Program& program, std::ostream* trace = nullptr);

}  // namespace cairn::testing

#endif  // CAIRN_TESTS_SUPPORT_LOCKSTEP_H_
