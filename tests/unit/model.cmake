# SPDX-License-Identifier: Apache-2.0
im_test(test_program SOURCES test_program.c random_program.c LINK m)
im_test(test_params SOURCES test_params.c gguf_make.c LINK m)
im_test(test_families SOURCES test_families.c gguf_make.c LINK m)
im_test(test_vocabulary SOURCES test_vocabulary.c gguf_make.c)
