# cmake -DIN=file -DOUT=file -P rewrite.cmake: the library's source with yielding.h's types in the place of what
# threads share. The sources stay free of hooks that only a test needs.
file(READ "${IN}" text)
if(IN MATCHES "/src/(tier/|engine/spiller)")  # run with a store alone, which no test of interleavings has: as they are
  file(WRITE "${OUT}" "${text}")
  return()
endif()
string(REPLACE "std::atomic<" "::cairn::testing::Atomic<" text "${text}")
string(REPLACE "std::mutex mutex_;" "::cairn::testing::YieldingMutex mutex_;" text "${text}")
string(REPLACE "std::this_thread::yield()" "::cairn::testing::wait_for_others()" text "${text}")
string(REPLACE "__builtin_ia32_pause()" "::cairn::testing::wait_for_others()" text "${text}")
string(REPLACE "std::memcmp(" "::cairn::testing::compare_memory(" text "${text}")
if(IN MATCHES "edge_store.h$")  # so small that a few edges fill a chunk, and a few more the directory of chunks
  string(REPLACE "kChunk = 1024;" "kChunk = 4;" with_small_chunks "${text}")
  if(with_small_chunks STREQUAL text)
    message(FATAL_ERROR "${IN}: no kChunk to make smaller")
  endif()
  set(text "${with_small_chunks}")
endif()
string(REGEX MATCH
       "std::(atomic_[a-z]+|mutex [a-z_]+;|shared_mutex|condition_variable|counting_semaphore|this_thread)|__atomic_"
       unknown "${text}")
if(unknown)
  message(FATAL_ERROR "${IN}: the interleaving test does not know how to let other threads run at '${unknown}'")
endif()
file(WRITE "${OUT}" "${text}")
