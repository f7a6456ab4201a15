# The README's C++ example is examples/cpp/readme.cpp, word for word.
get_filename_component(root ${CMAKE_CURRENT_LIST_DIR}/../.. ABSOLUTE)
file(READ ${root}/README.md readme)
file(READ ${root}/examples/cpp/readme.cpp example)
string(FIND "${readme}" "```cpp\n${example}```" at)
if(at EQUAL -1)
  message(FATAL_ERROR "README.md does not hold examples/cpp/readme.cpp: copy it there")
endif()
