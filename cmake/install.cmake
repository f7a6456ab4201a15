# `cmake --install` and find_package(hyla). A static library with the CUDA backend carries cudart_static in its link interface; nothing else leaks.
include(CMakePackageConfigHelpers)

set_target_properties(hyla PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR} EXPORT_NAME hyla)
if(BUILD_SHARED_LIBS)
  set(HYLA_CONFIG_NEEDS_CUDART OFF)
else()
  set(HYLA_CONFIG_NEEDS_CUDART ${HYLA_WITH_CUDA})
endif()

install(TARGETS hyla EXPORT hylaTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
foreach(folder core ops/kda ops/extend capi)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/${folder}/include/hyla DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
endforeach()
install(EXPORT hylaTargets NAMESPACE hyla:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/hyla)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/hylaConfig.cmake.in ${PROJECT_BINARY_DIR}/hylaConfig.cmake
                              INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/hyla)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/hylaConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/hylaConfig.cmake ${PROJECT_BINARY_DIR}/hylaConfigVersion.cmake DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/hyla)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/hyla)
