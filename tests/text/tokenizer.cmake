# SPDX-License-Identifier: Apache-2.0
im_test(test_tokenizer SOURCES test_tokenizer.c vocab_fixture.c LINK PkgConfig::jansson)

# The vocabularies of the real models. LONG_ counts of SmolLM2: ids of the reference, rebuilt from the file's tokens and merges.
function(tokenizer_model_test name file golden gemma)
  im_test(${name} SOURCES test_tokenizer_model.c vocab_fixture.c LINK PkgConfig::jansson LABELS model)
  target_compile_definitions(${name} PRIVATE MODEL_FILE="${file}" MODEL_GOLDEN="${golden}" MODEL_GEMMA=${gemma}
    LONG_A=25000 LONG_NEWLINE=25000 LONG_SPACE=1563 LONG_CJK=100000 LONG_FOX=42001 LONG_FAMILY=36000)
endfunction()
tokenizer_model_test(test_tokenizer_gemma3 gemma-3-270m.Q4_K_M.gguf gemma3-270m.json 1)
tokenizer_model_test(test_tokenizer_smollm2 SmolLM2-135M-Instruct.Q4_1.gguf smollm2-135m.json 0)

im_test(test_tokenizer_published SOURCES test_tokenizer_published.c vocab_fixture.c LINK PkgConfig::jansson LABELS deep)

im_test(test_tokenizer_json SOURCES test_tokenizer_json.c vocab_fixture.c LINK PkgConfig::jansson)

add_executable(tokenizer_ids tokenizer_ids.c)
target_link_libraries(tokenizer_ids PRIVATE ironmule_internal)
im_script_test(test_tokenizer_differential SCRIPT test_tokenizer_differential.py ARGS $<TARGET_FILE:tokenizer_ids> LABELS deep slow host TIMEOUT 900)
