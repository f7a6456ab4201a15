set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()

find_program(HYLA_CCACHE ccache)
if(HYLA_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${HYLA_CCACHE})
endif()

add_library(hyla_options INTERFACE)
target_compile_options(hyla_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wno-missing-field-initializers>)
if(HYLA_SANITIZE)
  target_compile_options(hyla_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${HYLA_SANITIZE};-fno-sanitize-recover=all;-fno-omit-frame-pointer>)
  target_link_options(hyla_options INTERFACE -fsanitize=${HYLA_SANITIZE})
endif()

find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(Eigen3 3.4 REQUIRED NO_MODULE)
find_package(nlohmann_json REQUIRED)

# For the files with the CPU backends' arithmetic: built for the machine's vector units. All files that see Eigen in one program must agree on those, since
# its inline functions are merged by the linker: they share these options, and rename the namespace so that a user's own Eigen stays apart. Instrumented
# vector code of -O3 takes minutes to compile: sanitizer builds take the plain form.
set(HYLA_VECTOR_OPTIONS -Wno-maybe-uninitialized -DEigen=hyla_eigen)
if(HYLA_SANITIZE)
  # Temporaries come from the heap, where the sanitizers see more.
  list(APPEND HYLA_VECTOR_OPTIONS -O1 -DEIGEN_STACK_ALLOCATION_LIMIT=0)
else()
  list(APPEND HYLA_VECTOR_OPTIONS $<$<NOT:$<CONFIG:Debug>>:-O3> $<$<BOOL:${HYLA_CPU_ARCH}>:-march=${HYLA_CPU_ARCH}>)
endif()
