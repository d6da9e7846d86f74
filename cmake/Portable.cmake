# MXT_PORTABLE: a binary for any Linux of its architecture with glibc 2.34 or newer. Small libraries and C++'s own are inside it;
# what has no static archive (oneDNN, OpenMP, OpenCL's loader that oneDNN names, fmt, Highway's detection) lies in ../lib/mindxtrain
# and is found by $ORIGIN. Objects are compiled as in `release`, and hold no path of this folder: two folders give the same bytes.

# portable_static(target archive…): the imported target stands for these archives. Debian compiles them for programs; in the Python module,
# which is none, those that print errors reach glibc's stderr by a name of ours (portable_glibc.c).
function(portable_static target)
  set(archives "")
  foreach(name ${ARGN})
    find_library(MXT_STATIC_${name} NAMES lib${name}.a REQUIRED)
    set(archive ${MXT_STATIC_${name}})
    if(name MATCHES "^(zstd|jpeg|png16|secp256k1)$")
      set(archive ${CMAKE_BINARY_DIR}/portable/lib${name}.a)
      file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/portable)
      execute_process(COMMAND ${CMAKE_OBJCOPY} -D --redefine-sym stderr=mxt_portable_stderr ${MXT_STATIC_${name}} ${archive} COMMAND_ERROR_IS_FATAL ANY)
    endif()
    list(APPEND archives ${archive})
  endforeach()
  set_target_properties(${target} PROPERTIES INTERFACE_LINK_LIBRARIES "${archives}")
endfunction()

set(MXT_PORTABLE_LIBRARIES "")  # what install() puts beside the binary, under the name that the loader asks for
function(portable_beside library)
  get_filename_component(real ${library} REALPATH)
  execute_process(COMMAND ${CMAKE_OBJDUMP} -p ${real} OUTPUT_VARIABLE headers COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCH "SONAME +([^\n ]+)" _ "${headers}")
  set(MXT_PORTABLE_LIBRARIES ${MXT_PORTABLE_LIBRARIES} "${real}|${CMAKE_MATCH_1}" PARENT_SCOPE)
endfunction()

portable_static(PkgConfig::PCRE2 pcre2-8)
portable_static(PkgConfig::YAML yaml)
portable_static(PkgConfig::SODIUM sodium)
portable_static(PkgConfig::ZSTD zstd)
portable_static(PkgConfig::ZLIB z)
portable_static(PkgConfig::JPEG jpeg)
portable_static(PkgConfig::PNG png16 z)
portable_static(PkgConfig::WEBP webpdemux webp)
portable_static(PkgConfig::SQLITE sqlite3)
portable_static(PkgConfig::OPENSSL ssl crypto)
portable_static(PkgConfig::SECP256K1 secp256k1)
portable_static(PkgConfig::CRYPTOPP cryptopp)
find_library(MXT_STATIC_utf8proc NAMES libutf8proc.a REQUIRED)
set(UTF8PROC_LIBRARY ${MXT_STATIC_utf8proc})

find_library(MXT_OPENCL_LOADER NAMES libOpenCL.so.1 REQUIRED)
find_library(MXT_FMT_LIBRARY NAMES fmt REQUIRED)
find_library(MXT_HWY_LIBRARY NAMES hwy REQUIRED)
set(_beside ${DNNL_LIBRARY} ${MXT_OPENCL_LOADER} ${MXT_FMT_LIBRARY} ${MXT_HWY_LIBRARY})
if(MXT_OPENMP)
  find_library(MXT_GOMP_LIBRARY NAMES libgomp.so.1 REQUIRED)
  list(APPEND _beside ${MXT_GOMP_LIBRARY})
endif()
foreach(library ${_beside})
  portable_beside(${library})
endforeach()

# What newer glibcs alone have and the archives ask for (portable_glibc.c).
add_library(mxt_portable OBJECT ${CMAKE_CURRENT_LIST_DIR}/portable_glibc.c)

# The old tag is read for the libraries of libraries too: oneDNN's OpenMP is the one beside it.
add_link_options(-Wl,--disable-new-dtags -static-libstdc++ -static-libgcc -Wl,--exclude-libs,ALL -Wl,--build-id=none -Wl,--as-needed
                 -Wl,--gc-sections)
if(CCACHE)
  # Sources named from the build folder in the objects, and so the release build's own cached ones.
  set(CMAKE_C_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_C_COMPILER_LAUNCHER})
else()
  set(CMAKE_C_COMPILER_LAUNCHER ${CMAKE_CURRENT_LIST_DIR}/relative.sh ${CMAKE_BINARY_DIR} ${CMAKE_SOURCE_DIR})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_C_COMPILER_LAUNCHER})
endif()
