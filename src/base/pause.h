// What a thread tells the processor when it waits for another.
#ifndef CAIRN_BASE_PAUSE_H_
#define CAIRN_BASE_PAUSE_H_

namespace cairn {

inline void pause_processor() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace cairn

#endif  // CAIRN_BASE_PAUSE_H_
