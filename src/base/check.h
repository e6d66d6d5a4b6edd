// Assertions on our own invariants. Never for what a caller, a file or a peer can get wrong: that is an error value
// or an exception.
#ifndef CAIRN_BASE_CHECK_H_
#define CAIRN_BASE_CHECK_H_

namespace cairn {

// Prints the condition and where it stands, then aborts.
[[noreturn]] void check_failed(const char* condition, const char* file, int line) noexcept;

}  // namespace cairn

// Stays on in release builds: for what memory safety or the right answer depends on.
#define CAIRN_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::cairn::check_failed(#condition, __FILE__, __LINE__))

// For the rest; off where NDEBUG is defined.
#ifdef NDEBUG
#define CAIRN_DCHECK(condition) static_cast<void>(sizeof((condition) ? 1 : 0))
#else
#define CAIRN_DCHECK(condition) CAIRN_CHECK(condition)
#endif

#endif  // CAIRN_BASE_CHECK_H_
