# Flags for every target of this project; never exported to consumers.
add_library(cairn_compile INTERFACE)
target_compile_options(cairn_compile INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion)
if(CAIRN_WERROR)
  target_compile_options(cairn_compile INTERFACE -Werror)
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  target_compile_options(cairn_compile INTERFACE -Wthread-safety -Wthread-safety-beta)
endif()

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(cairn_compile INTERFACE -Wno-restrict)  # false of std::string's operator+ at -O2: GCC bug 105651
endif()

# Sanitizers apply to the whole build: mixing sanitized and plain objects gives false reports.
if(CAIRN_SANITIZE)
  add_compile_options(-fsanitize=${CAIRN_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${CAIRN_SANITIZE})
endif()

# For tests and the command line: with a sanitizer, optimising them takes more than half of the time of the build. The
# libraries are optimised as ever.
function(cairn_compile_quickly target)
  if(CAIRN_SANITIZE)
    target_compile_options(${target} PRIVATE -O0)
  endif()
endfunction()
