# together(TARGET N [ALONE a.cc …]): N sources in one compilation, but those.
function(together target n)
  cmake_parse_arguments(G "" "" "ALONE" ${ARGN})
  if(MXT_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${n})
    # Such a compilation names its sources by whole paths: none reaches an object, so that another clone finds it in a compiler's cache.
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fmacro-prefix-map=${CMAKE_SOURCE_DIR}/=>)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # of a source that is included it believes that it is a header
      set_target_properties(${target} PROPERTIES UNITY_BUILD_CODE_BEFORE_INCLUDE "#pragma GCC diagnostic ignored \"-Wsubobject-linkage\"")
    endif()
    if(G_ALONE)
      set_source_files_properties(${G_ALONE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
  endif()
endfunction()

# room(NAME SOURCES a.cc … [ALONE [a.cc …]] [USES room …] [PUBLIC lib …] [PRIVATE lib …])
#
# A room is a static library whose include folder holds its own headers only (a link to src/NAME under the build tree),
# so a header of a room that is not named in USES cannot be found: an upward include does not compile. `base` is always
# there. Headers are also compiled alone (target all_verify_interface_header_sets), so each is self-contained.
#
# Sources are compiled several at a time, since most of a compilation is spent on the same headers (a third to a half less in all): a name
# in an anonymous namespace is one of its room. ALONE names the sources that are not, or all of a room's: files that follow one
# pattern with the same names, and what Highway compiles once per instruction set.
#
# A narrowing that is not written down (static_cast) ends the build.
function(room name)
  cmake_parse_arguments(R "" "" "SOURCES;ALONE;USES;PUBLIC;PRIVATE" ${ARGN})
  set(link_root ${CMAKE_BINARY_DIR}/rooms/${name})
  file(MAKE_DIRECTORY ${link_root})
  file(CREATE_LINK ${CMAKE_CURRENT_SOURCE_DIR} ${link_root}/${name} SYMBOLIC)
  add_library(mxt_${name} ${R_SOURCES})
  target_include_directories(mxt_${name} PUBLIC ${link_root})
  if(NOT R_ALONE STREQUAL R_SOURCES)
    together(mxt_${name} 8 ALONE ${R_ALONE})
  endif()
  file(GLOB headers CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.h)
  set(linked "")
  foreach(h ${headers})
    get_filename_component(n ${h} NAME)
    list(APPEND linked ${link_root}/${name}/${n})
  endforeach()
  if(linked)
    target_sources(mxt_${name} PUBLIC FILE_SET HEADERS BASE_DIRS ${link_root} FILES ${linked})
    set_target_properties(mxt_${name} PROPERTIES VERIFY_INTERFACE_HEADER_SETS ON)
  endif()
  target_compile_options(mxt_${name} PRIVATE "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Werror=conversion;-Werror=float-conversion>")
  if(NOT name STREQUAL base)
    target_link_libraries(mxt_${name} PUBLIC mxt_base)
  endif()
  foreach(use ${R_USES})
    target_link_libraries(mxt_${name} PUBLIC mxt_${use})
  endforeach()
  target_link_libraries(mxt_${name} PUBLIC ${R_PUBLIC} PRIVATE ${R_PRIVATE})
endfunction()

# room_test(NAME SOURCES a_test.cc … [ALONE …] USES room … [LABELS l …]): one GoogleTest binary per room, found by ctest.
function(room_test name)
  cmake_parse_arguments(T "" "TIMEOUT" "SOURCES;ALONE;USES;LABELS;LIBS" ${ARGN})
  add_executable(${name} ${T_SOURCES})
  together(${name} 6 ALONE ${T_ALONE})
  foreach(use ${T_USES})
    target_link_libraries(${name} PRIVATE mxt_${use})
  endforeach()
  target_link_libraries(${name} PRIVATE test_folders mxt_base GTest::gtest GTest::gtest_main ${T_LIBS})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release,RelWithDebInfo>:-O1>)  # what is tested is in the rooms; a third less to compile
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 300)
  endif()
  if(MXT_SANITIZE MATCHES "thread")  # five to twenty times as slow
    math(EXPR T_TIMEOUT "${T_TIMEOUT} * 6")
  endif()
  add_test(NAME ${name} COMMAND ${name})
  # A registry of their own: tests never show among a user's runs.
  set_tests_properties(${name} PROPERTIES TIMEOUT ${T_TIMEOUT} LABELS "${T_LABELS}" SKIP_RETURN_CODE 77
                       ENVIRONMENT "MINDXTRAIN_HOME=${CMAKE_BINARY_DIR}/tests/home")
  if(MXT_SANITIZE MATCHES "thread")
    set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT "TSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/tests/tsan.supp")
  endif()
endfunction()
