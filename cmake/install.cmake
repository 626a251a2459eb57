# cmake --install: the program, the library with its public headers and its package files, the embedded models, the documents.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/glint)

install(TARGETS glint RUNTIME)
install(TARGETS glint_library EXPORT glint ARCHIVE)
install(DIRECTORY include/glint TYPE INCLUDE)
install(EXPORT glint NAMESPACE glint:: FILE glint-targets.cmake DESTINATION ${package_dir})
configure_package_config_file(cmake/glint-config.cmake.in ${PROJECT_BINARY_DIR}/glint-config.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/glint-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/glint-config.cmake ${PROJECT_BINARY_DIR}/glint-config-version.cmake
  DESTINATION ${package_dir})

# A model travels with its note: README.md names the sources of its training text and their licences.
file(GLOB models CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/models/*/*.gguf ${PROJECT_SOURCE_DIR}/models/*/README.md)
foreach(file IN LISTS models)
  get_filename_component(folder ${file} DIRECTORY)
  get_filename_component(folder ${folder} NAME)
  install(FILES ${file} DESTINATION ${CMAKE_INSTALL_DATADIR}/glint/models/${folder})
endforeach()
install(FILES README.md CHANGELOG.md LICENSE TYPE DOC)
install(DIRECTORY docs TYPE DOC)
