# Liburing::Liburing: liburing, found by its files, since it comes without a CMake package. Read by the build and,
# installed beside cairn-config.cmake, by consumers: they link it, but compile none of its headers.
include(FindPackageHandleStandardArgs)
find_path(LIBURING_INCLUDE_DIR liburing.h)
find_library(LIBURING_LIBRARY uring)
mark_as_advanced(LIBURING_INCLUDE_DIR LIBURING_LIBRARY)
find_package_handle_standard_args(Liburing
  REQUIRED_VARS LIBURING_LIBRARY LIBURING_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "Cairn's file store needs liburing 2.3 or later with its headers (Debian: liburing-dev).")
if(Liburing_FOUND AND NOT TARGET Liburing::Liburing)
  add_library(Liburing::Liburing UNKNOWN IMPORTED)
  set_target_properties(Liburing::Liburing PROPERTIES
    IMPORTED_LOCATION ${LIBURING_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${LIBURING_INCLUDE_DIR})
endif()
