# GoogleTest under CTest. A test that needs a device calls GTEST_SKIP() where there is none and is counted as skipped.
find_package(GTest REQUIRED)
include(GoogleTest)

# hyla_add_test(NAME SOURCES... [LABEL cpu|gpu] [LIBRARIES ...]): an executable whose cases are registered one by one. A name that ends in
# "gpu_test" is built, but not registered: it is made for `make gpu-test`.
function(hyla_add_test name)
  cmake_parse_arguments(arg "" "LABEL" "LIBRARIES" ${ARGN})
  if(NOT arg_LABEL)
    set(arg_LABEL cpu)
  endif()
  add_executable(${name} ${arg_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PRIVATE hyla_testing hyla_options ${arg_LIBRARIES})
  if(arg_LABEL STREQUAL "gpu")
    target_link_libraries(${name} PRIVATE hyla_gpu_test_main)
  else()
    target_link_libraries(${name} PRIVATE GTest::gtest_main)
    gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60 PROPERTIES LABELS ${arg_LABEL} TIMEOUT 600)
  endif()
endfunction()
