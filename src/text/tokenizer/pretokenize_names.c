/* SPDX-License-Identifier: Apache-2.0
 *
 * The patterns by name. Each is what the tokenizer.json of the family says; where a name stands for no one file ("default"), it is what GGUF
 * files made before the key existed are commonly read with.
 */
#include "text/tokenizer/pretokenize.h"

#include <string.h>

#define L IM__CC_LETTER
#define N IM__CC_NUMBER
#define M IM__CC_MARK
#define P IM__CC_PUNCT
#define S IM__CC_SYMBOL
#define WS IM__CC_SPACE
#define NL IM__CC_NEWLINE
#define SET static const im__char_set
#define RULES static const im__pre_rule
#define STAGES static const im__pre_rule *const

SET letters = {.mask = L};
SET letters_marks = {.mask = L | M};
SET numbers = {.mask = N};
SET newlines = {.mask = NL};
SET newlines_slash = {.mask = NL, .ascii = "/"};
SET blank = {.ascii = " "};
SET white = {.mask = WS};
SET punctuation = {.mask = P};
SET signs = {.mask = P | S};
SET not_line_letter_number = {.mask = NL | L | N, .negate = true};
SET not_line_letter_sign = {.mask = NL | L | P | S, .negate = true};
SET other = {.mask = WS | L | N, .negate = true};
SET other_no_marks = {.mask = WS | L | M | N, .negate = true};
SET ascii_signs = {.ascii = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"};
SET ascii_letters = {.ascii = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"};

/* 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
RULES gpt2[] = {
    {.kind = IM__PRE_CONTRACTION},
    {.kind = IM__PRE_RUN, .prefix = &blank, .run = &letters},
    {.kind = IM__PRE_RUN, .prefix = &blank, .run = &numbers},
    {.kind = IM__PRE_RUN, .prefix = &blank, .run = &other},
    {.kind = IM__PRE_SPACE_BEFORE},
    {.kind = IM__PRE_SPACE},
    {0},
};

/* (?i:'s|...)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,DIGITS}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+ */
#define CL100K(digits)                                                                                                             \
    {                                                                                                                              \
        {.kind = IM__PRE_CONTRACTION_CI}, {.kind = IM__PRE_RUN, .prefix = &not_line_letter_number, .run = &letters},               \
            {.kind = IM__PRE_RUN, .run = &numbers, .max = (digits)},                                                               \
            {.kind = IM__PRE_RUN, .prefix = &blank, .run = &other, .tail = &newlines}, {.kind = IM__PRE_SPACE_LINES},              \
            {.kind = IM__PRE_SPACE_BEFORE}, {.kind = IM__PRE_SPACE}, {0},                                                          \
    }
RULES llama3[] = CL100K(3);
RULES qwen2[] = CL100K(1);
RULES cl100k_any_digits[] = CL100K(0);

/* As Qwen 2, with marks among the letters. */
RULES qwen35[] = {
    {.kind = IM__PRE_CONTRACTION_CI},
    {.kind = IM__PRE_RUN, .prefix = &not_line_letter_number, .run = &letters_marks},
    {.kind = IM__PRE_RUN, .run = &numbers, .max = 1},
    {.kind = IM__PRE_RUN, .prefix = &blank, .run = &other_no_marks, .tail = &newlines},
    {.kind = IM__PRE_SPACE_LINES},
    {.kind = IM__PRE_SPACE_BEFORE},
    {.kind = IM__PRE_SPACE},
    {0},
};

/* As Qwen 2, without line ends behind signs. */
RULES seed_coder[] = {
    {.kind = IM__PRE_CONTRACTION_CI},
    {.kind = IM__PRE_RUN, .prefix = &not_line_letter_number, .run = &letters},
    {.kind = IM__PRE_RUN, .run = &numbers, .max = 1},
    {.kind = IM__PRE_RUN, .prefix = &blank, .run = &other},
    {.kind = IM__PRE_SPACE_LINES},
    {.kind = IM__PRE_SPACE_BEFORE},
    {.kind = IM__PRE_SPACE},
    {0},
};

/* As Qwen 2, with \s*[\r\n] for line ends. */
RULES bailing[] = {
    {.kind = IM__PRE_CONTRACTION_CI},
    {.kind = IM__PRE_RUN, .prefix = &not_line_letter_number, .run = &letters},
    {.kind = IM__PRE_RUN, .run = &numbers, .max = 1},
    {.kind = IM__PRE_RUN, .prefix = &blank, .run = &other, .tail = &newlines},
    {.kind = IM__PRE_SPACE_LINE},
    {.kind = IM__PRE_SPACE_BEFORE},
    {.kind = IM__PRE_SPACE},
    {0},
};

/* [^\r\n\p{L}\p{N}]?UPPER*LOWER+CONTR?|[^\r\n\p{L}\p{N}]?UPPER+LOWER*CONTR?|\p{N}{1,DIGITS}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+ */
#define O200K(digits, contractions)                                                                                                \
    {                                                                                                                              \
        {.kind = IM__PRE_CASED_LOWER, .prefix = &not_line_letter_number, .suffix = (contractions)},                                \
            {.kind = IM__PRE_CASED_UPPER, .prefix = &not_line_letter_number, .suffix = (contractions)},                            \
            {.kind = IM__PRE_RUN, .run = &numbers, .max = (digits)},                                                               \
            {.kind = IM__PRE_RUN, .prefix = &blank, .run = &other, .tail = &newlines_slash}, {.kind = IM__PRE_SPACE_LINES},        \
            {.kind = IM__PRE_SPACE_BEFORE}, {.kind = IM__PRE_SPACE}, {0},                                                          \
    }
RULES o200k[] = O200K(3, true);
RULES tekken[] = O200K(1, false);

/* [ascii signs][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+ */
RULES deepseek3[] = {
    {.kind = IM__PRE_RUN_PREFIXED, .prefix = &ascii_signs, .run = &ascii_letters},
    {.kind = IM__PRE_RUN, .prefix = &not_line_letter_sign, .run = &letters_marks},
    {.kind = IM__PRE_RUN, .prefix = &blank, .run = &signs, .tail = &newlines},
    {.kind = IM__PRE_SPACE_LINES},
    {.kind = IM__PRE_SPACE_BEFORE},
    {.kind = IM__PRE_SPACE},
    {0},
};

static const im__char_range kana_han_range[] = {{0x4e00, 0x9fa5}, {0x3040, 0x309f}, {0x30a0, 0x30ff}, {0, 0}};
static const im__char_range asian_range[] = {{0x0800, 0x9fa5}, {0xac00, 0xd7ff}, {0, 0}};
static const im__char_range wide_sign_range[] = {
    {0x21, 0x2f}, {0x3a, 0x7e}, {0xff01, 0xff0f}, {0xff1a, 0xff5e}, {0x2018, 0x201f}, {0x3000, 0x3002}, {0, 0}};
/* Letters with case, as one published pattern lists them. */
static const im__char_range cased_letter_range[] = {
    {0x41, 0x5a},       {0x61, 0x7a},       {0xb5, 0xb5},       {0xc0, 0xd6},       {0xd8, 0xf6},
    {0xf8, 0x1ba},      {0x1bc, 0x1bf},     {0x1c4, 0x293},     {0x295, 0x2af},     {0x370, 0x373},
    {0x376, 0x377},     {0x37b, 0x37d},     {0x37f, 0x37f},     {0x386, 0x386},     {0x388, 0x38a},
    {0x38c, 0x38c},     {0x38e, 0x3a1},     {0x3a3, 0x3f5},     {0x3f7, 0x481},     {0x48a, 0x52f},
    {0x531, 0x556},     {0x10a0, 0x10c5},   {0x13a0, 0x13f5},   {0x13f8, 0x13fd},   {0x1c90, 0x1cba},
    {0x1cbd, 0x1cbf},   {0x1d00, 0x1d2b},   {0x1d6b, 0x1d77},   {0x1d79, 0x1d9a},   {0x1e00, 0x1f15},
    {0x1f18, 0x1f1d},   {0x1f20, 0x1f45},   {0x1f48, 0x1f4d},   {0x1f50, 0x1f57},   {0x1f59, 0x1f59},
    {0x1f5b, 0x1f5b},   {0x1f5d, 0x1f5d},   {0x1f5f, 0x1f7d},   {0x1f80, 0x1fb4},   {0x1fb6, 0x1fbc},
    {0x1fbe, 0x1fbe},   {0x1fc2, 0x1fc4},   {0x1fc6, 0x1fcc},   {0x1fd0, 0x1fd3},   {0x1fd6, 0x1fdb},
    {0x1fe0, 0x1fec},   {0x1ff2, 0x1ff4},   {0x1ff6, 0x1ffc},   {0x2102, 0x2102},   {0x2107, 0x2107},
    {0x210a, 0x2113},   {0x2115, 0x2115},   {0x2119, 0x211d},   {0x2124, 0x2124},   {0x2126, 0x2126},
    {0x2128, 0x2128},   {0x212a, 0x212d},   {0x212f, 0x2134},   {0x2139, 0x2139},   {0x213c, 0x213f},
    {0x2145, 0x2149},   {0x214e, 0x214e},   {0x2183, 0x2184},   {0x2c00, 0x2c7b},   {0x2c7e, 0x2ce4},
    {0x2ceb, 0x2cee},   {0x2cf2, 0x2cf3},   {0xa640, 0xa66d},   {0xa680, 0xa69b},   {0xa722, 0xa76f},
    {0xa771, 0xa787},   {0xa78b, 0xa78e},   {0xab70, 0xabbf},   {0xfb00, 0xfb06},   {0xfb13, 0xfb17},
    {0xff21, 0xff3a},   {0xff41, 0xff5a},   {0x10400, 0x1044f}, {0x104b0, 0x104d3}, {0x104d8, 0x104fb},
    {0x10c80, 0x10cb2}, {0x10cc0, 0x10cf2}, {0x118a0, 0x118df}, {0x1e900, 0x1e943}, {0, 0},
};
/* Full stops and commas of several scripts. */
static const im__char_range stop_range[] = {
    {0x2026, 0x2026}, {0x3001, 0x3002}, {0xff0c, 0xff0c}, {0x964, 0x964}, {0x6d4, 0x6d4}, {0x60c, 0x60c}, {0, 0}};
/* Punctuation is that of Unicode 8 where the reference asks its own table and not a regular expression: what came later, and what was moved elsewhere. */
static const im__char_range young_sign_range[] = {
    {0x61d, 0x61d},     {0x9fd, 0x9fd},     {0xa76, 0xa76},     {0xc77, 0xc77},     {0xc84, 0xc84},
    {0x1b4e, 0x1b4f},   {0x1b7d, 0x1b7f},   {0x2e43, 0x2e4f},   {0x2e52, 0x2e5d},   {0x10d6e, 0x10d6e},
    {0x10ead, 0x10ead}, {0x10f55, 0x10f59}, {0x10f86, 0x10f89}, {0x113d4, 0x113d5}, {0x113d7, 0x113d8},
    {0x1144b, 0x1144f}, {0x1145a, 0x1145b}, {0x1145d, 0x1145d}, {0x11660, 0x1166c}, {0x116b9, 0x116b9},
    {0x1183b, 0x1183b}, {0x11944, 0x11946}, {0x119e2, 0x119e2}, {0x11a3f, 0x11a46}, {0x11a9a, 0x11a9c},
    {0x11a9e, 0x11aa2}, {0x11b00, 0x11b09}, {0x11be1, 0x11be1}, {0x11c41, 0x11c45}, {0x11c70, 0x11c71},
    {0x11ef7, 0x11ef8}, {0x11f43, 0x11f4f}, {0x11fff, 0x11fff}, {0x12ff1, 0x12ff2}, {0x16d6d, 0x16d6f},
    {0x16e97, 0x16e9a}, {0x16fe2, 0x16fe2}, {0x1e5ff, 0x1e5ff}, {0x1e95e, 0x1e95f}, {0, 0}};
static const im__char_range old_sign_range[] = {{0x166d, 0x166d}, {0x111c9, 0x111c9}, {0, 0}};

SET kana_han = {.range = kana_han_range};
SET asian = {.range = asian_range};
SET wide_signs = {.range = wide_sign_range};
SET cased_letters = {.range = cased_letter_range};
SET no_stop = {.mask = WS, .ascii = "(|.,!?)", .range = stop_range, .negate = true};
SET punctuation_ascii = {.mask = P, .ascii = "$+<=>^`|~", .range = old_sign_range, .except = young_sign_range};
SET punctuation_default = {.mask = P, .ascii = "$+<=>^~|"};

RULES each_number[] = {{.kind = IM__PRE_RUN, .run = &numbers, .max = 1}, {0}};
RULES three_numbers[] = {{.kind = IM__PRE_RUN, .run = &numbers, .max = 3}, {0}};
RULES number_run[] = {{.kind = IM__PRE_RUN, .run = &numbers}, {0}};
RULES each_newline[] = {{.kind = IM__PRE_RUN, .run = &newlines, .max = 1}, {0}};
RULES kana_han_run[] = {{.kind = IM__PRE_RUN, .run = &kana_han}, {0}};
RULES asian_run[] = {{.kind = IM__PRE_RUN, .run = &asian}, {0}};
RULES white_cased_letters[] = {{.kind = IM__PRE_RUN, .prefix = &white, .run = &cased_letters}, {0}};
RULES white_wide_signs[] = {{.kind = IM__PRE_RUN, .prefix = &white, .run = &wide_signs}, {0}};
RULES white_letters[] = {{.kind = IM__PRE_RUN, .prefix = &white, .run = &letters}, {0}};
RULES white_punctuation[] = {{.kind = IM__PRE_RUN, .prefix = &white, .run = &punctuation}, {0}};
RULES no_stop_run[] = {{.kind = IM__PRE_RUN, .prefix = &blank, .run = &no_stop}, {0}};
RULES punctuation_run[] = {{.kind = IM__PRE_RUN, .run = &punctuation_ascii}, {0}};
RULES each_punctuation[] = {{.kind = IM__PRE_RUN, .run = &punctuation_ascii, .max = 1}, {0}};
RULES punctuation_default_run[] = {{.kind = IM__PRE_RUN, .run = &punctuation_default}, {0}};
RULES ascii_digits3[] = {{.kind = IM__PRE_DIGITS3}, {0}};
RULES space_at_end[] = {{.kind = IM__PRE_SPACE_AT_END}, {0}};
RULES thousands[] = {{.kind = IM__PRE_THOUSANDS}, {0}};
RULES byte_numbers[] = {{.kind = IM__PRE_BYTE_NUMBERS}, {0}};

STAGES by_gpt2[] = {gpt2, NULL};
STAGES by_llama3[] = {llama3, NULL};
STAGES by_qwen2[] = {qwen2, NULL};
STAGES by_qwen35[] = {qwen35, NULL};
STAGES by_number_gpt2[] = {each_number, gpt2, NULL};
STAGES by_o200k[] = {o200k, NULL};
STAGES by_tekken[] = {tekken, NULL};
STAGES by_seed_coder[] = {seed_coder, NULL};
STAGES by_bailing[] = {bailing, NULL};
STAGES by_minicpm5[] = {three_numbers, cl100k_any_digits, NULL};
STAGES by_deepseek3[] = {three_numbers, kana_han_run, deepseek3, NULL};
STAGES by_deepseek_llm[] = {each_newline, white_cased_letters, white_wide_signs, space_at_end, asian_run, each_number, NULL};
STAGES by_deepseek_coder[] = {each_newline, white_letters, white_punctuation, asian_run, each_number, NULL};
STAGES by_bloom[] = {no_stop_run, NULL};
STAGES by_viking[] = {no_stop_run, each_number, NULL};
STAGES by_superbpe[] = {number_run, thousands, NULL};
STAGES by_falcon[] = {punctuation_run, gpt2, byte_numbers, ascii_digits3, NULL};
STAGES by_default[] = {punctuation_default_run, gpt2, number_run, ascii_digits3, NULL};

/* WHOLE: a piece that is a token as a whole needs no merges. BOS: wants a BOS when the file does not say. NFC: the text is normalised first. */
enum { WHOLE = 1, BOS = 2, NFC = 4 };
#define NAMES(X)                                                                                                                   \
    X("default", by_default, 0)                                                                                                    \
    X("gpt-2", by_gpt2, 0)                                                                                                         \
    X("gpt2", by_gpt2, 0)                                                                                                          \
    X("phi-2", by_gpt2, 0)                                                                                                         \
    X("mpt", by_gpt2, NFC)                                                                                                         \
    X("olmo", by_gpt2, NFC)                                                                                                        \
    X("jais", by_gpt2, 0)                                                                                                          \
    X("trillion", by_gpt2, 0)                                                                                                      \
    X("granite-docling", by_gpt2, 0)                                                                                               \
    X("gigachat", by_gpt2, 0)                                                                                                      \
    X("a.x-4.0", by_gpt2, 0)                                                                                                       \
    X("mellum", by_gpt2, 0)                                                                                                        \
    X("exaone4", by_gpt2, 0)                                                                                                       \
    X("jina-v2-code", by_gpt2, 0)                                                                                                  \
    X("jina-v2-de", by_gpt2, 0)                                                                                                    \
    X("jina-v2-es", by_gpt2, 0)                                                                                                    \
    X("jina-v1-en", by_gpt2, 0)                                                                                                    \
    X("jina-de", by_gpt2, 0)                                                                                                       \
    X("jina-es", by_gpt2, 0)                                                                                                       \
    X("roberta-bpe", by_gpt2, 0)                                                                                                   \
    X("modern-bert", by_gpt2, 0)                                                                                                   \
    X("llama-bpe", by_llama3, WHOLE | BOS)                                                                                         \
    X("llama3", by_llama3, WHOLE | BOS)                                                                                            \
    X("llama-v3", by_llama3, WHOLE | BOS)                                                                                          \
    X("falcon3", by_llama3, WHOLE | BOS)                                                                                           \
    X("falcon-h1", by_llama3, WHOLE | BOS)                                                                                         \
    X("pixtral", by_llama3, WHOLE | BOS)                                                                                           \
    X("midm-2.0", by_llama3, WHOLE | BOS)                                                                                          \
    X("lfm2", by_llama3, WHOLE | BOS)                                                                                              \
    X("dbrx", by_llama3, 0)                                                                                                        \
    X("smaug-bpe", by_llama3, 0)                                                                                                   \
    X("chatglm-bpe", by_llama3, 0)                                                                                                 \
    X("glm4", by_llama3, 0)                                                                                                        \
    X("minicpm5", by_minicpm5, WHOLE)                                                                                              \
    X("qwen2", by_qwen2, NFC)                                                                                                      \
    X("qwen35", by_qwen35, NFC)                                                                                                    \
    X("deepseek-r1-qwen", by_qwen2, NFC)                                                                                           \
    X("kormo", by_qwen2, 0)                                                                                                        \
    X("f2llmv2", by_qwen2, NFC)                                                                                                    \
    X("megrez", by_qwen2, NFC)                                                                                                     \
    X("stablelm2", by_qwen2, NFC)                                                                                                  \
    X("hunyuan", by_qwen2, 0)                                                                                                      \
    X("grok-2", by_qwen2, 0)                                                                                                       \
    X("solar-open", by_qwen2, 0)                                                                                                   \
    X("smollm", by_number_gpt2, 0)                                                                                                 \
    X("starcoder", by_number_gpt2, 0)                                                                                              \
    X("refact", by_number_gpt2, 0)                                                                                                 \
    X("command-r", by_number_gpt2, NFC)                                                                                            \
    X("codeshell", by_number_gpt2, 0)                                                                                              \
    X("exaone", by_number_gpt2, 0)                                                                                                 \
    X("minerva-7b", by_number_gpt2, 0)                                                                                             \
    X("mellum2", by_number_gpt2, 0)                                                                                                \
    X("gpt-4o", by_o200k, 0)                                                                                                       \
    X("o200k", by_o200k, 0)                                                                                                        \
    X("llama4", by_o200k, 0)                                                                                                       \
    X("kanana2", by_o200k, 0)                                                                                                      \
    X("minimax-m2", by_o200k, 0)                                                                                                   \
    X("tekken", by_tekken, WHOLE | BOS)                                                                                            \
    X("seed-coder", by_seed_coder, 0)                                                                                              \
    X("bailingmoe", by_bailing, 0)                                                                                                 \
    X("bailingmoe2", by_bailing, 0)                                                                                                \
    X("llada-moe", by_bailing, 0)                                                                                                  \
    X("deepseek-v3", by_deepseek3, 0)                                                                                              \
    X("hunyuan-dense", by_deepseek3, 0)                                                                                            \
    X("joyai-llm", by_deepseek3, 0)                                                                                                \
    X("deepseek-llm", by_deepseek_llm, 0)                                                                                          \
    X("deepseek-coder", by_deepseek_coder, 0)                                                                                      \
    X("bloom", by_bloom, 0)                                                                                                        \
    X("poro-chat", by_bloom, 0)                                                                                                    \
    X("gpt3-finnish", by_bloom, 0)                                                                                                 \
    X("viking", by_viking, 0)                                                                                                      \
    X("superbpe", by_superbpe, 0)                                                                                                  \
    X("falcon", by_falcon, 0)

#define ENTRY(known_name, stages, flags)                                                                                           \
    {.name = (known_name),                                                                                                         \
     .stage = (stages),                                                                                                            \
     .ignore_merges = ((flags)&WHOLE) != 0,                                                                                        \
     .add_bos = ((flags)&BOS) != 0,                                                                                                \
     .nfc = ((flags)&NFC) != 0},
#define NAME(known_name, stages, flags) known_name,

static const im__pre known[] = {NAMES(ENTRY)};
static const char *const names[] = {NAMES(NAME) NULL};

const im__pre *im__pre_find(const char *name, size_t n)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strlen(known[i].name) == n && memcmp(known[i].name, name, n) == 0) return &known[i];
    }
    return NULL;
}

const char *const *im__tokenizer_pre_names(void) { return names; }

static const struct {
    const im__pre_rule *stage;
    const char *regex;
    bool covers;
} written[] = {
    {gpt2, "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", true},
    {gpt2, "'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", true},
    {llama3,
     "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
     "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     true},
    {qwen2,
     "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
     "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     true},
    {cl100k_any_digits,
     "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}+| "
     "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     true},
    {qwen35,
     "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| "
     "?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     true},
    {o200k,
     "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^"
     "\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}{"
     "1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     true},
    {tekken,
     "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{"
     "Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*|\\p{N}| "
     "?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     true},
    {deepseek3,
     "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
     "?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     false},
    {kana_han_run, "[\xe4\xb8\x80-\xe9\xbe\xa5\xe3\x81\x80-\xe3\x82\x9f\xe3\x82\xa0-\xe3\x83\xbf]+", false},
    {asian_run, "[\xe4\xb8\x80-\xe9\xbe\xa5\xe0\xa0\x80-\xe4\xb8\x80\xea\xb0\x80-\xed\x9f\xbf]+", false},
    {three_numbers, "\\p{N}{1,3}", false},
    {each_number, "\\p{N}", false},
    {number_run, "\\p{N}+", false},
    {each_newline, "[\\r\\n]", false},
    {white_letters, "\\s?\\p{L}+", false},
    {white_punctuation, "\\s?\\p{P}+", false},
    {ascii_digits3, "[0-9][0-9][0-9]", false},
};

const im__pre_rule *im__pre_stage_find(const char *regex, size_t n, bool *covers)
{
    for (size_t i = 0; i < sizeof written / sizeof *written; i++) {
        if (strlen(written[i].regex) != n || memcmp(written[i].regex, regex, n) != 0) continue;
        *covers = written[i].covers;
        return written[i].stage;
    }
    return NULL;
}

const im__pre_rule *im__pre_stage_known(im__pre_known which)
{
    static const im__pre_rule *const stage[] = {
        [IM__PRE_KNOWN_GPT2] = gpt2,
        [IM__PRE_KNOWN_EACH_NUMBER] = each_number,
        [IM__PRE_KNOWN_NUMBERS] = number_run,
        [IM__PRE_KNOWN_BYTE_NUMBERS] = byte_numbers,
        [IM__PRE_KNOWN_EACH_SIGN] = each_punctuation,
        [IM__PRE_KNOWN_SIGNS] = punctuation_run,
    };
    return stage[which];
}
