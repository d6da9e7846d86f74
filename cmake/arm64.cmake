# Toolchain of the preset `arm64`: Debian's cross compiler against Debian's own arm64 packages, which `./dev arm64` unpacks into a folder.
# Tests and whatever else CMake runs of this build are run by qemu.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)

get_filename_component(_root ${CMAKE_CURRENT_LIST_DIR}/../.cache/arm64/root ABSOLUTE)
if(NOT EXISTS ${_root}/usr/lib/aarch64-linux-gnu)
  message(FATAL_ERROR "no arm64 packages in ${_root}: run ./dev arm64")
endif()
set(CMAKE_SYSROOT ${_root})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${_root})
set(ENV{PKG_CONFIG_LIBDIR} ${_root}/usr/lib/aarch64-linux-gnu/pkgconfig:${_root}/usr/share/pkgconfig)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -L ${_root})
