# Writes OUTPUT, which tells the commit of SOURCE_DIR, if it would change. Run at every build:
#   cmake -D SOURCE_DIR=... -D OUTPUT=... -P commit.cmake
set(commit "unknown")
find_program(git git)
if(git)
  execute_process(COMMAND ${git} -C ${SOURCE_DIR} describe --always --abbrev=12 --dirty --exclude "*"
    OUTPUT_VARIABLE described RESULT_VARIABLE status OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(status EQUAL 0)
    set(commit ${described})
  endif()
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT [[
#include "bench/core/machine.h"

namespace cairn::bench {

const char* built_commit() { return "@commit@"; }

}  // namespace cairn::bench
]] @ONLY)
