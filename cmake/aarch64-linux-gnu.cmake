# SPDX-License-Identifier: Apache-2.0
# Cross build for 64-bit ARM with Debian's or Ubuntu's cross compiler; tests run under qemu-user. The third-party libraries lie in a
# private folder, which tools/fetch-arm64-libs fills and IRONMULE_ARM64_LIBS names.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES IRONMULE_ARM64_LIBS)

if(NOT IRONMULE_ARM64_LIBS)
  set(cache $ENV{XDG_CACHE_HOME})
  if(NOT cache)
    set(cache $ENV{HOME}/.cache)
  endif()
  set(IRONMULE_ARM64_LIBS ${cache}/ironmule/arm64-libs CACHE PATH "folder that tools/fetch-arm64-libs filled")
endif()
set(libs ${IRONMULE_ARM64_LIBS}/usr/lib/aarch64-linux-gnu)

set(ENV{PKG_CONFIG_LIBDIR} ${libs}/pkgconfig:${IRONMULE_ARM64_LIBS}/usr/share/pkgconfig)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${IRONMULE_ARM64_LIBS})
set(CMAKE_FIND_ROOT_PATH /usr/aarch64-linux-gnu ${IRONMULE_ARM64_LIBS})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_C_FLAGS_INIT "-isystem ${IRONMULE_ARM64_LIBS}/usr/include/aarch64-linux-gnu") # headers that differ between machines
set(CMAKE_EXE_LINKER_FLAGS_INIT "-Wl,-rpath-link,${libs}:${IRONMULE_ARM64_LIBS}/lib/aarch64-linux-gnu")
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -L /usr/aarch64-linux-gnu
  -E LD_LIBRARY_PATH=${libs}:${IRONMULE_ARM64_LIBS}/lib/aarch64-linux-gnu)
