# AsyncIo with faults. An object library, as support.cmake's: a program takes $<TARGET_OBJECTS:cairn_test_faulty_io>.
include_guard(GLOBAL)
add_library(cairn_test_faulty_io OBJECT
  ${CMAKE_CURRENT_LIST_DIR}/faulty_io.cc
  ${CMAKE_CURRENT_LIST_DIR}/power_loss_io.cc)
target_include_directories(cairn_test_faulty_io PRIVATE
  ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests)
target_link_libraries(cairn_test_faulty_io PRIVATE cairn_compile)
