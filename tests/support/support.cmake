# What several kinds of tests share: the naive model, the decoder of operations, the runners. An object library: it
# names no build of cairn, and the program that takes $<TARGET_OBJECTS:cairn_test_support> links the one it means.
include_guard(GLOBAL)
add_library(cairn_test_support OBJECT
  ${CMAKE_CURRENT_LIST_DIR}/describe.cc
  ${CMAKE_CURRENT_LIST_DIR}/invalid_calls.cc
  ${CMAKE_CURRENT_LIST_DIR}/ledgers.cc
  ${CMAKE_CURRENT_LIST_DIR}/lockstep.cc
  ${CMAKE_CURRENT_LIST_DIR}/lockstep_snapshots.cc
  ${CMAKE_CURRENT_LIST_DIR}/lockstep_store.cc
  ${CMAKE_CURRENT_LIST_DIR}/naive_prefix_cache.cc
  ${CMAKE_CURRENT_LIST_DIR}/naive_prefix_cache_store.cc
  ${CMAKE_CURRENT_LIST_DIR}/naive_snapshot_policies.cc
  ${CMAKE_CURRENT_LIST_DIR}/operation_decoder.cc
  ${CMAKE_CURRENT_LIST_DIR}/protocol_breaker.cc
  ${CMAKE_CURRENT_LIST_DIR}/seed_on_crash.cc
  ${CMAKE_CURRENT_LIST_DIR}/shrink.cc
  ${CMAKE_CURRENT_LIST_DIR}/tables.cc)
target_include_directories(cairn_test_support PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/tests)
target_link_libraries(cairn_test_support PRIVATE cairn_compile)
