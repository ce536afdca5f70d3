# SPDX-License-Identifier: Apache-2.0
# A room is a folder of src/: im_room(NAME [LINK libs...] SOURCES files...) makes it an object library that the library collects.
# Which room may include which is checked by tools/check-layers from tools/layers.txt.
define_property(GLOBAL PROPERTY IRONMULE_ROOMS BRIEF_DOCS "object libraries of the rooms" FULL_DOCS "object libraries of the rooms")
function(im_room name)
  cmake_parse_arguments(ROOM "" "" "LINK;SOURCES" ${ARGN})
  add_library(${name} OBJECT ${ROOM_SOURCES})
  target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(${name} PUBLIC ${ROOM_LINK})
  set_property(GLOBAL APPEND PROPERTY IRONMULE_ROOMS ${name})
endfunction()
