# SPDX-License-Identifier: Apache-2.0
#
#   im_page(VARIABLE)   VARIABLE: a C file, made in the build folder, that holds the chat page (page.h)
#
# The page is written as several files and served as one. Run as a script (cmake -D OUT=... -P page.cmake) this file joins them; OUT ending in
# .html leaves the page there as it is served.
cmake_minimum_required(VERSION 3.25)
set(im_page_folder ${CMAKE_CURRENT_LIST_DIR})

function(im_page variable)
  set(out ${CMAKE_CURRENT_BINARY_DIR}/page_html.c)
  set(parts page.cmake index.html page.css markdown.js page.js)
  list(TRANSFORM parts PREPEND ${im_page_folder}/)
  add_custom_command(OUTPUT ${out} COMMAND ${CMAKE_COMMAND} -D OUT=${out} -P ${im_page_folder}/page.cmake
    DEPENDS ${parts} COMMENT "Joining the chat page" VERBATIM)
  set(${variable} ${out} PARENT_SCOPE)
endfunction()

function(im__write_c out text)
  file(WRITE ${out} "${text}")
  file(READ ${out} bytes HEX)
  string(REPEAT "." 64 line)
  string(REGEX REPLACE "(${line})" "\\1\n    " bytes "${bytes}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
  file(WRITE ${out} "/* SPDX-License-Identifier: Apache-2.0 */
#include \"page.h\"

const unsigned char page_html[] = {
    ${bytes}
};
const size_t page_html_size = sizeof page_html;
")
endfunction()

if(NOT CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
  return()
endif()

file(READ ${im_page_folder}/index.html html)
file(READ ${im_page_folder}/page.css style)
file(READ ${im_page_folder}/markdown.js markdown)
file(READ ${im_page_folder}/page.js script)
string(REPLACE "@style@" "${style}" html "${html}")
string(REPLACE "@script@" "${markdown}\n${script}" html "${html}")
if(OUT MATCHES "[.]html$")
  file(WRITE ${OUT} "${html}")
else()
  im__write_c(${OUT} "${html}")
endif()
