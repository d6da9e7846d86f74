option(MXT_TESTS "Build the tests" ON)
option(MXT_BENCH "Build the native benchmarks" OFF)
option(MXT_FUZZ "Build the fuzzers (clang only)" OFF)
option(MXT_OPENMP "oneDNN, which brings OpenMP; off = without, for ThreadSanitizer" ON)
option(MXT_PORTABLE "A binary for other Linuxes: small libraries inside, big ones beside it (cmake/Portable.cmake)" OFF)
option(MXT_UNITY "Several sources of a room in one compilation; off = each by itself" ON)
option(MXT_PYTHON "The Python module (python/CMakeLists.txt)" OFF)
set(MXT_SANITIZE "" CACHE STRING "address,undefined | thread | empty")

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

# -O2, a tenth less to compile than -O3; rooms whose loops are the product ask for more (src/kernels, src/tokenizer).
string(REPLACE "-O3" "-O2" CMAKE_CXX_FLAGS_RELEASE "${CMAKE_CXX_FLAGS_RELEASE}")

find_program(CCACHE ccache)
if(CCACHE)
  # Paths relative to this folder: another clone or work tree finds what this one has compiled.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()

# Contraction into FMA is left to the kernels that want it: the same source must give the same bits in every build.
add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:-ffp-contract=off>
                    $<$<COMPILE_LANGUAGE:CXX>:-Wall> $<$<COMPILE_LANGUAGE:CXX>:-Wextra>
                    $<$<COMPILE_LANGUAGE:CXX>:-Werror=return-type> $<$<COMPILE_LANGUAGE:CXX>:-Wno-missing-field-initializers>
                    # GCC 12 sees overlaps in std::string's operator+ that cannot be (its bug 105651).
                    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-restrict>)
if(MXT_SANITIZE)
  add_compile_options(-fsanitize=${MXT_SANITIZE} -fno-omit-frame-pointer -g)
  add_link_options(-fsanitize=${MXT_SANITIZE})
  if(MXT_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize-recover=undefined)
  endif()
endif()
if(MXT_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)  # the rooms report their coverage to the fuzzer
endif()
if(BUILD_SHARED_LIBS)
  add_link_options(-Wl,-z,defs)  # a missing arrow between rooms fails at link, not at run time
endif()

# What Highway compiles each loop for. Plain code, AVX2 and AVX-512 are enough on x86-64, NEON on arm64: every further target costs compile
# time, and vectors of SVE, whose length is not known to the compiler, cannot be kept in arrays as the products do.
if(CMAKE_SYSTEM_PROCESSOR STREQUAL "aarch64")
  set(MXT_HWY_TARGETS "HWY_DISABLED_TARGETS=(HWY_SVE|HWY_SVE2|HWY_SVE_256|HWY_SVE2_128)")
else()
  set(MXT_HWY_TARGETS "HWY_DISABLED_TARGETS=(HWY_SSSE3|HWY_SSE4)")
endif()
