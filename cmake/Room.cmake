# room(NAME SOURCES a.cc … [USES room …] [PUBLIC lib …] [PRIVATE lib …])
#
# A room is a static library whose include folder holds its own headers only (a link to src/NAME under the build tree),
# so a header of a room that is not named in USES cannot be found: an upward include does not compile. `base` is always
# there. Headers are also compiled alone (target all_verify_interface_header_sets), so each is self-contained.
#
# A narrowing that is not written down (static_cast) ends the build.
function(room name)
  cmake_parse_arguments(R "" "" "SOURCES;USES;PUBLIC;PRIVATE" ${ARGN})
  set(link_root ${CMAKE_BINARY_DIR}/rooms/${name})
  file(MAKE_DIRECTORY ${link_root})
  file(CREATE_LINK ${CMAKE_CURRENT_SOURCE_DIR} ${link_root}/${name} SYMBOLIC)
  add_library(mxt_${name} ${R_SOURCES})
  target_include_directories(mxt_${name} PUBLIC ${link_root})
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

# room_test(NAME SOURCES a_test.cc … USES room … [LABELS l …]): one GoogleTest binary per room, found by ctest.
function(room_test name)
  cmake_parse_arguments(T "" "TIMEOUT" "SOURCES;USES;LABELS;LIBS" ${ARGN})
  add_executable(${name} ${T_SOURCES})
  foreach(use ${T_USES})
    target_link_libraries(${name} PRIVATE mxt_${use})
  endforeach()
  target_link_libraries(${name} PRIVATE test_folders mxt_base GTest::gtest GTest::gtest_main ${T_LIBS})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release,RelWithDebInfo>:-O1>)  # what is tested is in the rooms; a third less to compile
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 300)
  endif()
  add_test(NAME ${name} COMMAND ${name})
  # A registry of their own: tests never show among a user's runs.
  set_tests_properties(${name} PROPERTIES TIMEOUT ${T_TIMEOUT} LABELS "${T_LABELS}" SKIP_RETURN_CODE 77
                       ENVIRONMENT "MINDXTRAIN_HOME=${CMAKE_BINARY_DIR}/tests/home")
endfunction()
