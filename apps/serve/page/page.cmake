# SPDX-License-Identifier: Apache-2.0
#
#   im_page(VARIABLE)   VARIABLE: a C file, made in the build folder, that holds the chat page (page_html.h)
#
# The page is written as several files and served as one. Run as a script (cmake -D OUT=... -P page.cmake) this file joins them and works out the
# policy that allows this one script and this one style sheet and nothing else. OUT ending in .html leaves the joined page there instead.
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

# 'sha256-...' of a text: base64, six bits a digit.
function(im__policy_hash variable text)
  set(digits ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/)
  string(SHA256 hex "${text}")
  set(hash "")
  foreach(at RANGE 0 63 3)
    string(SUBSTRING "${hex}00" ${at} 3 three)
    math(EXPR high "0x${three} >> 6")
    math(EXPR low "0x${three} & 63")
    string(SUBSTRING ${digits} ${high} 1 high)
    string(SUBSTRING ${digits} ${low} 1 low)
    string(APPEND hash ${high}${low})
  endforeach()
  # 32 bytes are 43 digits and a filler.
  string(SUBSTRING ${hash} 0 43 hash)
  set(${variable} "'sha256-${hash}='" PARENT_SCOPE)
endfunction()

function(im__write_c out html policy)
  file(WRITE ${out} "${html}")
  file(READ ${out} bytes HEX)
  string(REPEAT "." 64 line)
  string(REGEX REPLACE "(${line})" "\\1\n    " bytes "${bytes}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1, " bytes "${bytes}")
  file(WRITE ${out} "/* SPDX-License-Identifier: Apache-2.0 */
#include \"page_html.h\"

const char page_policy[] = \"${policy}\";

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
string(PREPEND script "${markdown}")
im__policy_hash(style_hash "${style}")
im__policy_hash(script_hash "${script}")
string(REPLACE "@style@" "${style}" html "${html}")
string(REPLACE "@script@" "${script}" html "${html}")
string(JOIN "; " policy "default-src 'none'" "script-src ${script_hash}" "style-src ${style_hash}" "connect-src 'self'" "img-src data:"
  "base-uri 'none'" "form-action 'none'" "frame-ancestors 'none'")
if(OUT MATCHES "[.]html$")
  file(WRITE ${OUT} "${html}")
else()
  im__write_c(${OUT} "${html}" "${policy}")
endif()
