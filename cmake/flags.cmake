# SPDX-License-Identifier: Apache-2.0
# Flags that every target gets. The float flags are part of the numeric contract (docs/numerics.md, section 1): no contraction, no
# reassociation, on every compiler; tests/unit/test_float_flags.c fails if one of them is lost, tools/check-flags if one target goes without.
option(IRONMULE_PROGRAM "build the ironmule program" ON)
option(IRONMULE_TESTS "build the tests" ON)
option(IRONMULE_WERROR "warnings are errors" OFF)
option(IRONMULE_FUZZ "build the fuzz targets with libFuzzer (clang only) instead of as players of their corpora" OFF)
set(IRONMULE_SANITIZE "" CACHE STRING "sanitizers to build with: address, undefined, thread, fuzzer-no-link (comma separated)")

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Debug or RelWithDebInfo" FORCE)
endif()
set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O3 -g -DNDEBUG")

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

set(IRONMULE_FLOAT_FLAGS -ffp-contract=off -fno-fast-math)
add_compile_definitions(_GNU_SOURCE)
add_compile_options(${IRONMULE_FLOAT_FLAGS} -fno-math-errno -fno-strict-aliasing)
add_compile_options(-Wall -Wextra -Wshadow -Wpointer-arith -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wundef)
if(IRONMULE_WERROR)
  add_compile_options(-Werror)
endif()
if(IRONMULE_SANITIZE)
  add_compile_options(-fsanitize=${IRONMULE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${IRONMULE_SANITIZE})
  if(CMAKE_C_COMPILER_ID STREQUAL GNU)
    add_compile_options(-Wno-maybe-uninitialized -Wno-format-truncation) # what sanitizers insert misleads these warnings
  endif()
endif()
