# SPDX-License-Identifier: Apache-2.0
# Sources of the server that stand alone: they are built here, as the fuzz preset builds no program.
set(serve_source ${PROJECT_SOURCE_DIR}/apps/serve)
im_fuzz(fuzz_http SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/fuzz_http.c ${serve_source}/http_parse.c MAX_LEN 4096 DICT ${CMAKE_CURRENT_SOURCE_DIR}/http.dict)
im_fuzz(fuzz_fields SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/fuzz_fields.c ${serve_source}/body_json.c ${serve_source}/fields.c ${serve_source}/fields_prompt.c
  MAX_LEN 4096 DICT ${CMAKE_CURRENT_SOURCE_DIR}/fields.dict LINK PkgConfig::jansson)
foreach(target fuzz_http fuzz_fields)
  target_include_directories(${target} PRIVATE ${serve_source})
endforeach()
