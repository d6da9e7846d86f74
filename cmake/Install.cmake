# cmake --install: PREFIX/bin/mindxtrain; PREFIX/lib/mindxtrain with libmindxtrain_cuda.so where it was built, and with what a portable
# binary brings along; PREFIX/share with texts, man pages, completion and licences.
include(GNUInstallDirs)
if(TARGET mxt_portable)
  target_link_libraries(mindxtrain PRIVATE $<TARGET_OBJECTS:mxt_portable>)
endif()
install(TARGETS mindxtrain RUNTIME DESTINATION bin)
set_target_properties(mindxtrain PROPERTIES INSTALL_RPATH "\$ORIGIN/../lib/mindxtrain")
if(NOT BUILD_SHARED_LIBS)
  # A list of a build's own would be filled up with colons, each of which means the folder that the program happens to be started in.
  set_target_properties(mindxtrain PROPERTIES BUILD_WITH_INSTALL_RPATH ON)
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/apps/lib)
  file(CREATE_LINK ${CMAKE_BINARY_DIR}/lib ${CMAKE_BINARY_DIR}/apps/lib/mindxtrain SYMBOLIC)  # where a build has its CUDA object
endif()
# What share/mindxtrain holds once it is installed: a built program finds it from any folder, too.
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/apps/share/mindxtrain)
foreach(texts data docs)
  file(CREATE_LINK ${CMAKE_SOURCE_DIR}/${texts} ${CMAKE_BINARY_DIR}/apps/share/mindxtrain/${texts} SYMBOLIC)
endforeach()
if(TARGET mindxtrain_cuda)
  install(TARGETS mindxtrain_cuda LIBRARY DESTINATION lib/mindxtrain)
endif()
foreach(pair ${MXT_PORTABLE_LIBRARIES})
  string(REPLACE "|" ";" pair "${pair}")
  list(GET pair 0 file)
  list(GET pair 1 soname)
  install(FILES ${file} DESTINATION lib/mindxtrain RENAME ${soname})
endforeach()
install(FILES data/text/general.txt DESTINATION share/mindxtrain/data/text)
# What recipes of the program read: the pages are text to learn from.
install(DIRECTORY docs/ DESTINATION share/mindxtrain/docs FILES_MATCHING PATTERN "*.md")
install(FILES LICENSE README.md DESTINATION share/doc/mindxtrain)
