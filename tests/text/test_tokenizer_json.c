/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokenizers from tokenizer.json: small ones with ids and texts of Hugging Face's library (tests/data/tokenizers/README.md), what must be refused and how,
 * and what the files beside it say.
 */
#include "text/tokenizer/pretokenize.h"
#include "text/tokenizer/tokenizer_json.h"
#include "vocab_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const im__encode_options parsed = {.parse_special = true}, plain = {0};
static const im__tokenizer_json_options nothing = {0};

static im__bytes bytes(const char *s) { return (im__bytes){s, strlen(s)}; }

/* Parses texts in which ' stands for "; NULL with the message in *err. */
static im__tokenizer *parse(const char *tokenizer, const char *config, const char *map, const im__tokenizer_json_options *options,
                            im_error *err)
{
    char *copy[3] = {strdup(tokenizer), strdup(config), strdup(map)};
    im__tokenizer *t = NULL;
    for (int i = 0; i < 3; i++) {
        for (char *p = copy[i]; *p != 0; p++) {
            if (*p == '\'') *p = '"';
        }
    }
    const im__tokenizer_json_texts texts = {"file", bytes(copy[0]), bytes(copy[1]), bytes(copy[2])};
    im_status status = im__tokenizer_json_parse(&t, &texts, options, err);
    assert_true((status == IM_OK) == (t != NULL));
    assert_true(status == IM_OK || err->message[0] != 0);
    for (int i = 0; i < 3; i++) free(copy[i]);
    return t;
}

static im__tokenizer *must_parse(const char *tokenizer, const char *config, const char *map,
                                 const im__tokenizer_json_options *options)
{
    im_error err = {IM_OK, ""};
    im__tokenizer *t = parse(tokenizer, config, map, options, &err);
    if (t == NULL) fail_msg("%s", err.message);
    return t;
}

/* ---- against the reference ---- */

static void small_tokenizers_give_the_reference_ids(void **state)
{
    (void)state;
    json_t *rows = vocab_json_load("rules.json"), *row, *one;
    size_t i, k, failed = 0, cases = 0;
    assert_int_equal(json_array_size(rows), 12);
    json_array_foreach(rows, i, row)
    {
        const char *text = json_string_value(json_object_get(row, "tokenizer"));
        const im__tokenizer_json_texts texts = {.name = json_string_value(json_object_get(row, "name")), .tokenizer = bytes(text)};
        im__tokenizer *t = NULL;
        im_error err = {IM_OK, ""};
        if (im__tokenizer_json_parse(&t, &texts, &nothing, &err) != IM_OK) fail_msg("%s", err.message);
        json_array_foreach(json_object_get(row, "cases"), k, one)
        {
            const json_t *decoded = json_array_get(one, 2);
            cases++;
            failed += !vocab_check_string(t, json_array_get(one, 0), &parsed, json_array_get(one, 1));
            failed +=
                !vocab_check_decode(t, json_array_get(one, 1), false, json_string_value(decoded), json_string_length(decoded));
        }
        im__tokenizer_free(t);
    }
    json_decref(rows);
    assert_int_equal(failed, 0);
    assert_true(cases > 250);
}

static im__tokenizer *read_folder(const char *name, const im__tokenizer_json_options *options, im__buf *chat_template)
{
    char path[4096];
    im__tokenizer *t = NULL;
    im_error err = {IM_OK, ""};
    snprintf(path, sizeof path, "%s/tokenizers/mlx/%s", IM_TEST_DATA, name);
    if (im__tokenizer_json_read(&t, chat_template, path, options, &err) != IM_OK) fail_msg("%s", err.message);
    return t;
}

static void folders_give_the_reference_ids(void **state)
{
    (void)state;
    static const struct {
        const char *folder, *cases, *in_template;
        int32_t eos;
    } f[] = {{"gemma3", "spm-gemma", "<start_of_turn>", 1},
             {"llama3", "bpe-llama3", "<|eot_id|>", 390},
             {"qwen2", "bpe-qwen2", "<|im_end|>", 376}};
    json_t *zoo = vocab_json_load("zoo.json"), *one;
    size_t i;
    for (size_t k = 0; k < sizeof f / sizeof *f; k++) {
        im__buf chat_template = {0};
        json_t *entry = json_object_get(zoo, f[k].cases), *bos = json_object_get(entry, "adds_bos");
        im__tokenizer *t = read_folder(f[k].folder, &nothing, &chat_template);
        json_array_foreach(json_object_get(entry, "cases"), i, one)
        {
            assert_true(vocab_check_string(t, json_array_get(one, 0), &parsed, json_array_get(one, 1)));
        }
        assert_int_equal(im__tokenizer_adds_bos(t), json_is_integer(bos));
        if (json_is_integer(bos)) assert_int_equal(im__tokenizer_bos(t), json_integer_value(bos));
        assert_int_equal(im__tokenizer_eos(t), f[k].eos);
        assert_true(im__tokenizer_is_end(t, f[k].eos));
        assert_non_null(strstr(chat_template.data, f[k].in_template));
        im__buf_free(&chat_template);
        im__tokenizer_free(t);
    }
    json_decref(zoo);
}

/* ---- a file to take apart ---- */

#define ADDED(id, content, more) "{'id':" id ",'content':'" content "','single_word':false,'lstrip':false,'rstrip':false," more "}"
#define SPECIAL "'normalized':false,'special':true"
#define PLAIN "'normalized':false,'special':false"
#define MARK "\xe2\x96\x81"
#define DECODER                                                                                                                    \
    "{'type':'Sequence','decoders':[{'type':'Replace','pattern':{'String':'" MARK                                                  \
    "'},'content':' '},{'type':'ByteFallback'},{'type':'Fuse'}]}"
#define TO_MARK "{'type':'Replace','pattern':{'String':' '},'content':'" MARK "'}"
#define VOCAB "{'<unk>':0,'" MARK "':1,'a':2,'b':3,'ab':4,'" MARK "a':5}"
#define MERGES "['a b',['" MARK "','a']]"
#define FILE_OF(added, normalizer, pre, post, decoder, more, vocab, merges)                                                        \
    "{'version':'1.0','truncation':null,'padding':null,'added_tokens':[" added "],'normalizer':" normalizer                        \
    ",'pre_tokenizer':" pre ",'post_processor':" post ",'decoder':" decoder ",'model':{'type':'BPE'," more "'vocab':" vocab        \
    ",'merges':" merges "}}"
#define ADDED_UNK ADDED("0", "<unk>", SPECIAL)
#define GOOD FILE_OF(ADDED_UNK, TO_MARK, "null", "null", DECODER, "'unk_token':'<unk>',", VOCAB, MERGES)

static void expect(const im__tokenizer *t, const char *text, const im__encode_options *options, const char *ids)
{
    json_t *want = vocab_json_parse(ids);
    assert_true(vocab_check_ids(t, text, strlen(text), options, want));
    json_decref(want);
}

static void the_small_file_works(void **state)
{
    (void)state;
    im__tokenizer *t = must_parse(GOOD, "", "", &nothing);
    expect(t, "ab a", &plain, "[4,5]");
    expect(t, "x<unk>a", &parsed, "[0,0,2]");
    assert_int_equal(im__tokenizer_count(t), 6);
    assert_int_equal(im__tokenizer_bos(t), -1);
    assert_false(im__tokenizer_adds_bos(t));
    im__tokenizer_free(t);
}

/* Ids of the reference (tokenizers 0.23.3) for what the small file becomes with one thing changed. */
static void one_change_each(void **state)
{
    (void)state;
#define META(split) "{'type':'Metaspace','replacement':'" MARK "','prepend_scheme':'never','split':" split "}"
#define SPLIT(behavior) "{'type':'Split','pattern':{'String':'a'},'behavior':'" behavior "','invert':false}"
#define WORD(content) ADDED_UNK ",{'id':6,'content':'" content "','single_word':true,'lstrip':false,'rstrip':false," PLAIN "}"
#define VOCAB_AND(more) "{'<unk>':0,'" MARK "':1,'a':2,'b':3,'ab':4,'" MARK "a':5," more "}"
#define CHANGED(added, normalizer, pre, more, vocab, merges)                                                                       \
    FILE_OF(added, normalizer, pre, "null", DECODER, "'unk_token':'<unk>'," more, vocab, merges)
    static const struct {
        const char *tokenizer, *text, *ids;
    } c[] = {
        {CHANGED(ADDED_UNK, TO_MARK, "null", "'ignore_merges':true,", VOCAB, "[]"), "ab", "[4]"},
        {CHANGED(ADDED_UNK, TO_MARK, "null", "", VOCAB, "[]"), "ab", "[2,3]"},
        {CHANGED(WORD("ba"), TO_MARK, "null", "", VOCAB, MERGES), "ba ba_ xba-ba ba", "[6,1,3,2,0,1,0,3,2,0,6,1,6]"},
        {CHANGED(WORD("a-a"), TO_MARK, "null", "", VOCAB, MERGES), "xa-a-a a-a", "[0,2,0,2,0,2,1,6]"},
        {CHANGED(ADDED_UNK, "null", META("true"), "", VOCAB_AND("'b" MARK "':6"), "['b " MARK "']"), "ab a", "[2,3,1,2]"},
        {CHANGED(ADDED_UNK, "null", META("false"), "", VOCAB_AND("'b" MARK "':6"), "['b " MARK "']"), "ab a", "[2,6,2]"},
        {CHANGED(ADDED_UNK, TO_MARK, SPLIT("Isolated"), "", VOCAB_AND("'ba':6"), "['b a','a b']"), "bab", "[3,2,3]"},
        {CHANGED(ADDED_UNK, TO_MARK, SPLIT("MergedWithPrevious"), "", VOCAB_AND("'ba':6"), "['b a','a b']"), "bab", "[6,3]"},
        {CHANGED(ADDED_UNK, TO_MARK, SPLIT("MergedWithNext"), "", VOCAB_AND("'ba':6"), "['b a','a b']"), "bab", "[3,4]"},
        {CHANGED(ADDED_UNK, TO_MARK, "null", "", VOCAB_AND("'<unk>" MARK "':6"), "[['<unk>','" MARK "']]"), "x a", "[6,2]"},
    };
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        im__tokenizer *t = must_parse(c[i].tokenizer, "", "", &nothing);
        expect(t, c[i].text, &parsed, c[i].ids);
        im__tokenizer_free(t);
    }
}

static bool count_cut(void *context, const char *piece, size_t n)
{
    (void)piece;
    *(size_t *)context = *(size_t *)context * 10 + n;
    return true;
}

/* The sign U+2E43 is younger than the reference's table. */
static void punctuation_is_that_of_the_reference(void **state)
{
    (void)state;
    const im__pre_rule *const stage[] = {im__pre_stage_known(IM__PRE_KNOWN_SIGNS), NULL};
    size_t lengths = 0;
    im__pre_split(&(im__pre){.stage = stage}, "a\xe2\xb9\x83!?a", 7, count_cut, &lengths);
    assert_int_equal(lengths, 421);
}

/* Files can ask for much work or memory with few words; both stay in proportion to the text. */
static void hostile_rules_stay_cheap(void **state)
{
    (void)state;
#define STRIPS ",{'id':6,'content':' ','single_word':false,'lstrip':true,'rstrip':true," PLAIN "}," ADDED("7", "\\t", PLAIN)
#define GROW                                                                                                                       \
    "{'type':'Replace','pattern':{'String':'a'},'content':'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'}"
    static const char text[] =
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    im__tokenizer *t = must_parse(CHANGED(ADDED_UNK STRIPS, TO_MARK, "null", "", VOCAB, MERGES), "", "", &nothing);
    assert_int_equal(vocab_count_repeated(t, " \t", 400000), 800000);
    im__tokenizer_free(t);

    t = must_parse(CHANGED(ADDED_UNK, "{'type':'Sequence','normalizers':[" GROW "," GROW "," GROW "]}", "null", "", VOCAB, "[]"),
                   "", "", &nothing);
    im__ids ids = {0};
    im_error err = {IM_OK, ""};
    assert_int_equal(im__tokenizer_encode(t, text, sizeof text - 1, &parsed, &ids, &err), IM_ERR_MEMORY);
    im__ids_free(&ids);
    im__tokenizer_free(t);
}

/* ---- refusals ---- */

typedef struct refusal {
    const char *tokenizer, *says;
    im_status status;
} refusal;

static void check_refusals(const refusal *r, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        im_error err = {IM_OK, ""};
        im__tokenizer *t = parse(r[i].tokenizer, "", "", &nothing, &err);
        if (t != NULL) fail_msg("taken: %s", r[i].tokenizer);
        if (strstr(err.message, r[i].says) == NULL || strncmp(err.message, "file: ", 6) != 0)
            fail_msg("%s: %s", r[i].tokenizer, err.message);
        assert_int_equal(err.status, r[i].status);
    }
}

static void unknown_constructs_are_refused_by_name(void **state)
{
    (void)state;
#define NORMALIZER(n) FILE_OF(ADDED_UNK, n, "null", "null", DECODER, "", VOCAB, MERGES)
#define PRE(p) FILE_OF(ADDED_UNK, "null", p, "null", DECODER, "", VOCAB, MERGES)
#define POST(p) FILE_OF(ADDED_UNK, "null", "null", p, DECODER, "", VOCAB, MERGES)
#define DECODED(d) FILE_OF(ADDED_UNK, "null", "null", "null", d, "", VOCAB, MERGES)
#define MODEL(m) FILE_OF(ADDED_UNK, "null", "null", "null", DECODER, m, VOCAB, MERGES)
    static const refusal r[] = {
        {NORMALIZER("{'type':'Lowercase'}"), "the normaliser \"Lowercase\"", IM_ERR_UNSUPPORTED},
        {NORMALIZER("{'type':'Sequence','normalizers':[{'type':'NFC'},{'type':'Strip'}]}"), "\"Strip\"", IM_ERR_UNSUPPORTED},
        {NORMALIZER("{'type':'Replace','pattern':{'Regex':'x+'},'content':'y'}"), "\"x+\"", IM_ERR_UNSUPPORTED},
        {NORMALIZER("{'type':'NFC','odd':1}"), "\"odd\"", IM_ERR_UNSUPPORTED},
        {NORMALIZER("{'type':'Replace','pattern':{'String':''},'content':'y'}"), "0 bytes", IM_ERR_UNSUPPORTED},
        {NORMALIZER("[]"), "no type", IM_ERR_FORMAT},
        {PRE("{'type':'UnicodeScripts'}"), "\"UnicodeScripts\"", IM_ERR_UNSUPPORTED},
        {PRE("{'type':'Split','pattern':{'Regex':'(a|b)+c'},'behavior':'Isolated','invert':false}"), "\"(a|b)+c\"",
         IM_ERR_UNSUPPORTED},
        {PRE("{'type':'Split','pattern':{'String':'x'},'behavior':'Removed','invert':false}"), "\"Removed\"", IM_ERR_UNSUPPORTED},
        {PRE("{'type':'Split','pattern':{'String':'x'},'behavior':'Isolated','invert':true}"), "inverted", IM_ERR_UNSUPPORTED},
        {PRE("{'type':'Sequence','pretokenizers':[{'type':'ByteLevel'},{'type':'Metaspace'}]}"), "behind ByteLevel",
         IM_ERR_UNSUPPORTED},
        {PRE("{'type':'Metaspace','replacement':'_','prepend_scheme':'often'}"), "\"often\"", IM_ERR_UNSUPPORTED},
        {PRE("{'type':'Sequence','pretokenizers':[{'type':'Digits'},{'type':'ByteLevel','add_prefix_space':true}]}"),
         "behind a Split", IM_ERR_UNSUPPORTED},
        {POST("{'type':'BertProcessing'}"), "\"BertProcessing\"", IM_ERR_UNSUPPORTED},
        {POST("{'type':'TemplateProcessing','single':[{'SpecialToken':{'id':'<s>'}},{'Sequence':{'id':'A'}}],'special_tokens':{}}"),
         "\"<s>\"", IM_ERR_FORMAT},
        {POST("{'type':'TemplateProcessing','single':[{'Sequence':{'id':'A'}},{'Sequence':{'id':'B'}}],'special_tokens':{}}"),
         "TemplateProcessing", IM_ERR_UNSUPPORTED},
        {DECODED("null"), "no decoder", IM_ERR_UNSUPPORTED},
        {DECODED("{'type':'WordPiece'}"), "\"WordPiece\"", IM_ERR_UNSUPPORTED},
        {DECODED("{'type':'ByteLevel'}"), "\"ByteLevel\"", IM_ERR_UNSUPPORTED},
        {DECODED("{'type':'Sequence','decoders':[{'type':'Fuse'},{'type':'ByteFallback'}]}"), "in this order", IM_ERR_UNSUPPORTED},
        {MODEL("'dropout':0.1,"), "dropout", IM_ERR_UNSUPPORTED},
        {MODEL("'end_of_word_suffix':'</w>',"), "\"</w>\"", IM_ERR_UNSUPPORTED},
        {MODEL("'continuing_subword_prefix':'##',"), "\"##\"", IM_ERR_UNSUPPORTED},
        {MODEL("'fuse_unk':1,"), "fuse_unk", IM_ERR_FORMAT},
        {MODEL("'new':1,"), "\"new\"", IM_ERR_UNSUPPORTED},
        {"{'model':{'type':'Unigram','vocab':[]}}", "\"Unigram\"", IM_ERR_UNSUPPORTED},
        {"{'model':{'vocab':{}}}", "no type", IM_ERR_FORMAT},
    };
    check_refusals(r, sizeof r / sizeof *r);
}

static void impossible_vocabularies_are_refused(void **state)
{
    (void)state;
#define VOCABULARY(v, m) FILE_OF("", "null", "null", "null", DECODER, "", v, m)
#define TOKENS(a) FILE_OF(a, "null", "null", "null", DECODER, "", VOCAB, MERGES)
    static const refusal r[] = {
        {VOCABULARY("{'a':0,'b':0}", "[]"), "two tokens have the id 0", IM_ERR_FORMAT},
        {VOCABULARY("{'a':0,'a':1}", "[]"), "same string", IM_ERR_FORMAT},
        {VOCABULARY("{'a':-1}", "[]"), "not a number from 0 on", IM_ERR_FORMAT},
        {VOCABULARY("{'a':1.0}", "[]"), "not a number from 0 on", IM_ERR_FORMAT},
        {VOCABULARY("{'a':'0'}", "[]"), "not a number from 0 on", IM_ERR_FORMAT},
        {VOCABULARY("{'a':99999999999999999999}", "[]"), "not a number from 0 on", IM_ERR_FORMAT},
        {VOCABULARY("{'a':4294967296}", "[]"), "4294967296", IM_ERR_FORMAT},
        {VOCABULARY("{'a':16777215}", "[]"), "16777215", IM_ERR_FORMAT},
        {VOCABULARY("{'':0}", "[]"), "0 bytes", IM_ERR_FORMAT},
        {VOCABULARY("{}", "[]"), "empty", IM_ERR_FORMAT},
        {VOCABULARY("[]", "[]"), "not an object", IM_ERR_FORMAT},
        {VOCABULARY("{'a':0}", "{}"), "not a list", IM_ERR_FORMAT},
        {VOCABULARY("{'a':0,'aa':1}", "['a']"), "merge 0", IM_ERR_FORMAT},
        {VOCABULARY("{'a':0,'a a':1,'aa a':2}", "['a a a']"), "merge 0", IM_ERR_FORMAT},
        {VOCABULARY("{'a':0,'aa':1}", "[['a','a'],['a','b']]"), "merge 1", IM_ERR_FORMAT},
        {VOCABULARY("{'a':0,'aa':1}", "[['a','a','a']]"), "merge 0", IM_ERR_FORMAT},
        {VOCABULARY("{'a':0,'aa':1}", "[['','aa']]"), "merge 0", IM_ERR_FORMAT},
        {VOCABULARY("{'a':0,'aa':1}", "[1]"), "merge 0", IM_ERR_FORMAT},
        {TOKENS(ADDED("0", "other", SPECIAL)), "two tokens have the id 0", IM_ERR_FORMAT},
        {TOKENS(ADDED("9", "ab", SPECIAL)), "same string", IM_ERR_FORMAT},
        {TOKENS(ADDED("9", "x", SPECIAL) "," ADDED("9", "y", SPECIAL)), "two tokens have the id 9", IM_ERR_FORMAT},
        {TOKENS(ADDED("1000000", "x", SPECIAL)), "1000000", IM_ERR_FORMAT},
        {TOKENS(ADDED("-1", "x", SPECIAL)), "-1", IM_ERR_FORMAT},
        {TOKENS(ADDED("9", "", SPECIAL)), "0 bytes", IM_ERR_FORMAT},
        {TOKENS(ADDED("9", "x", "'normalized':0,'special':true")), "normalized", IM_ERR_FORMAT},
        {TOKENS(ADDED("9", "x", "'special':true,'special':true")), "twice", IM_ERR_FORMAT},
        {FILE_OF("", "null", "null", "null", DECODER, "'unk_token':'none',", VOCAB, MERGES), "unk_token", IM_ERR_FORMAT},
    };
    check_refusals(r, sizeof r / sizeof *r);
}

static void broken_json_is_refused(void **state)
{
    (void)state;
    static const refusal r[] = {
        {"", "empty", IM_ERR_FORMAT},
        {"[]", "not an object", IM_ERR_FORMAT},
        {"{'model':null}", "no vocabulary", IM_ERR_FORMAT},
        {"{'model':[]}", "is a list", IM_ERR_FORMAT},
        {"{'model':{'type':'BPE'},'model':{'type':'BPE'}}", "twice", IM_ERR_FORMAT},
        {"{'model':{'type':'BPE','vocab':{},'vocab':{}}}", "twice", IM_ERR_FORMAT},
        {"{'odd':1}", "\"odd\"", IM_ERR_UNSUPPORTED},
        {"{'version':1,'version':1}", "twice", IM_ERR_FORMAT},
        {VOCABULARY("{'\\ud83d':0}", "[]"), "not JSON", IM_ERR_FORMAT},
        {VOCABULARY("{'\xff':0}", "[]"), "not JSON", IM_ERR_FORMAT},
        {VOCABULARY("{'a':0,}", "[]"), "not JSON", IM_ERR_FORMAT},
        {GOOD "x", "not JSON", IM_ERR_FORMAT},
    };
    check_refusals(r, sizeof r / sizeof *r);
    char deep[1000] = "";
    for (int i = 0; i < 400; i++) strcat(deep, "[");
    check_refusals(&(refusal){deep, "not JSON", IM_ERR_FORMAT}, 1);
}

static void cut_files_are_refused(void **state)
{
    (void)state;
    const char good[] = GOOD;
    for (size_t n = 0; n < sizeof good - 1; n++) {
        char cut[sizeof good];
        im_error err = {IM_OK, ""};
        memcpy(cut, good, n);
        cut[n] = 0;
        assert_null(parse(cut, "", "", &nothing, &err));
    }
}

static void every_failing_allocation_is_an_error(void **state)
{
    (void)state;
    const char *late =
        FILE_OF(ADDED("9", "a b", "'normalized':true,'special':false"), TO_MARK, "null", "null", DECODER, "", VOCAB, MERGES);
    im_error err = {IM_OK, ""};
    for (long n = 1;; n++) {
        im__alloc_fail_after(n);
        im__tokenizer *t = parse(late, "{'bos_token':'a'}", "", &nothing, &err);
        bool failed = t == NULL;
        im__alloc_fail_after(0);
        im__tokenizer_free(t);
        if (!failed) break;
        assert_int_equal(err.status, IM_ERR_MEMORY);
        assert_true(n < 100);
    }
}

/* ---- beside the file ---- */

#define TWO_TOKENS ADDED_UNK "," ADDED("6", "<s>", SPECIAL) "," ADDED("7", "</s>", PLAIN)
#define TEMPLATE                                                                                                                   \
    "{'type':'TemplateProcessing','single':[{'SpecialToken':{'id':'<s>','type_id':0}},{'Sequence':{'id':'A','type_id':0}}],'pair'" \
    ":[],'special_tokens':{'<s>':{"                                                                                                \
    "'id':'<s>','ids':[6],'tokens':['<s>']}}}"
#define WITH_TEMPLATE FILE_OF(TWO_TOKENS, TO_MARK, "null", TEMPLATE, DECODER, "", VOCAB, MERGES)
#define WITHOUT_TEMPLATE FILE_OF(TWO_TOKENS, TO_MARK, "null", "null", DECODER, "", VOCAB, MERGES)

static void tokens_around_a_text(void **state)
{
    (void)state;
    const im__encode_options both = {.parse_special = true, .add_bos = true, .add_eos = true};
    static const struct {
        const char *tokenizer, *config, *map, *ids;
    } c[] = {
        {WITH_TEMPLATE, "", "", "[6,2]"},
        {WITH_TEMPLATE, "{'bos_token':'<s>','eos_token':{'content':'</s>','lstrip':false}}", "", "[6,2]"},
        {WITHOUT_TEMPLATE, "{'bos_token':'<s>','eos_token':'</s>','add_bos_token':true}", "", "[2]"},
        {WITHOUT_TEMPLATE, "{'bos_token':'<s>','eos_token':'</s>','add_bos_token':true,'tokenizer_class':'LlamaTokenizer'}", "",
         "[6,2]"},
        {WITH_TEMPLATE, "{'bos_token':'<s>','add_bos_token':false,'tokenizer_class':'GemmaTokenizer'}", "", "[2]"},
        {WITH_TEMPLATE, "{'eos_token':'</s>','add_eos_token':true,'tokenizer_class':'GemmaTokenizerFast'}", "", "[6,2,7]"},
        {WITH_TEMPLATE, "{'add_eos_token':true,'tokenizer_class':'LlamaTokenizerFast'}", "{'eos_token':{'content':'</s>'}}",
         "[6,2,7]"},
    };
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        im__tokenizer *t = must_parse(c[i].tokenizer, c[i].config, c[i].map, &nothing);
        expect(t, "a", &both, c[i].ids);
        im__tokenizer_free(t);
    }
}

static void wrong_configurations_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *config, *says;
    } c[] = {
        {"{'bos_token':'none'}", "bos_token"},
        {"{'bos_token':'</s>'}", "adds token 6"},
        {"{'add_bos_token':1,'tokenizer_class':'LlamaTokenizer'}", "add_bos_token"},
        {"{'added_tokens_decoder':{'2':{'content':'x'}}}", "two tokens have the id 2"},
        {"{'added_tokens_decoder':{'x':{'content':'x'}}}", "cannot be"},
        {"{'added_tokens_decoder':{'9':{'content':'x','odd':1}}}", "odd"},
        {"{", "tokenizer_config.json: not JSON"},
    };
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        im_error err = {IM_OK, ""};
        assert_null(parse(WITH_TEMPLATE, c[i].config, "", &nothing, &err));
        if (strstr(err.message, c[i].says) == NULL) fail_msg("%s: %s", c[i].config, err.message);
    }
}

/* A token that only the configuration has is one all the same; one that it calls special or the end of texts is special. */
static void configuration_adds_tokens(void **state)
{
    (void)state;
    im__tokenizer *t = must_parse(
        WITH_TEMPLATE, "{'eos_token':'</s>','added_tokens_decoder':{'9':{'content':'new','special':true},'8':{'content':'old'}}}",
        "", &nothing);
    expect(t, "new</s>", &parsed, "[9,7]");
    assert_int_equal(im__tokenizer_type(t, 9), IM__TOKEN_CONTROL);
    assert_int_equal(im__tokenizer_type(t, 7), IM__TOKEN_CONTROL);
    assert_int_equal(im__tokenizer_type(t, 8), IM__TOKEN_USER_DEFINED);
    assert_true(im__tokenizer_is_end(t, 7));
    im__tokenizer_free(t);
    t = must_parse(WITH_TEMPLATE, "{'added_tokens_decoder':{'7':{'content':'</s>','special':true}}}", "", &nothing);
    assert_int_equal(im__tokenizer_type(t, 7), IM__TOKEN_CONTROL);
    im__tokenizer_free(t);
}

static void rows_of_the_model(void **state)
{
    (void)state;
    const int32_t end[] = {2, 9}, beyond[] = {10};
    im_error err = {IM_OK, ""};
    im__tokenizer *t = must_parse(WITH_TEMPLATE, "", "", &(im__tokenizer_json_options){.rows = 10, .end = end, .end_count = 2});
    assert_int_equal(im__tokenizer_count(t), 10);
    assert_int_equal(im__tokenizer_type(t, 9), IM__TOKEN_UNUSED);
    assert_true(im__tokenizer_is_end(t, 2) && im__tokenizer_is_end(t, 9) && !im__tokenizer_is_end(t, 3));
    im__tokenizer_free(t);

    t = must_parse(WITH_TEMPLATE, "", "", &(im__tokenizer_json_options){.rows = 7}); /* </s> has no row: it is text */
    assert_int_equal(im__tokenizer_count(t), 7);
    expect(t, "<s></s>a", &parsed, "[6,2]");
    im__tokenizer_free(t);

    assert_null(parse(WITH_TEMPLATE, "", "", &(im__tokenizer_json_options){.rows = 5}, &err));
    assert_non_null(strstr(err.message, "beyond the 5 rows"));
    assert_null(parse(WITH_TEMPLATE, "", "", &(im__tokenizer_json_options){.end = beyond, .end_count = 1}, &err));
    assert_non_null(strstr(err.message, "end token is 10"));
}

/* Text that a user typed gives no control token, whether tokens are looked for before or after normalising. */
static void plain_spans_stay_plain(void **state)
{
    (void)state;
    const char *late = FILE_OF(ADDED("6", "<s>", "'normalized':true,'special':true"), "{'type':'Prepend','prepend':'" MARK "'}",
                               "null", "null", DECODER, "", VOCAB, MERGES);
    const im__span span = {0, 3};
    const im__encode_options some = {.parse_special = true, .plain = &span, .plain_count = 1};
    im__tokenizer *t = must_parse(WITH_TEMPLATE, "", "", &nothing);
    expect(t, "<s><s>", &some, "[6]");
    expect(t, "<s><s>", &plain, "[]");
    im__tokenizer_free(t);
    t = must_parse(late, "", "", &nothing);
    expect(t, "<s>", &parsed, "[6]");
    expect(t, "<s>", &some, "[1]");
    expect(t, "<s>", &plain, "[1]");
    im__tokenizer_free(t);
}

/* ---- folders ---- */

static void write_file(const char *folder, const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (const char *p = text; *p != 0; p++) fputc(*p == '\'' ? '"' : *p, f);
    fclose(f);
}

static void expect_template(const char *folder, const char *config, const char *want, im_status status)
{
    im__buf text = {0};
    im__tokenizer *t = NULL;
    im_error err = {IM_OK, ""};
    write_file(folder, "tokenizer_config.json", config);
    assert_int_equal(im__tokenizer_json_read(&t, &text, folder, &nothing, &err), status);
    if (status == IM_OK) assert_string_equal(text.data == NULL ? "" : text.data, want);
    if (status != IM_OK) assert_non_null(strstr(err.message, want));
    im__buf_free(&text);
    im__tokenizer_free(t);
}

static void chat_templates(void **state)
{
    (void)state;
    char folder[] = "/tmp/ironmule-tokenizer-XXXXXX", path[256];
    static const char *const file[] = {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"};
    im__tokenizer *t = NULL;
    im_error err = {IM_OK, ""};
    assert_non_null(mkdtemp(folder));
    assert_int_equal(im__tokenizer_json_read(&t, NULL, folder, &nothing, &err), IM_ERR_IO);
    assert_non_null(strstr(err.message, "tokenizer.json"));
    write_file(folder, "tokenizer.json", GOOD);
    expect_template(folder, "{}", "", IM_OK);
    expect_template(folder, "{'chat_template':null}", "", IM_OK);
    expect_template(folder, "{'chat_template':'a\\nb'}", "a\nb", IM_OK);
    expect_template(folder, "{'chat_template':[{'name':'x','template':'1'},{'name':'default','template':'2'}]}", "2", IM_OK);
    expect_template(folder, "{'chat_template':[{'name':'x','template':'1'}]}", "1", IM_OK);
    expect_template(folder, "{'chat_template':[{'name':'x','template':'1'},{'name':'y','template':'2'}]}", "named default",
                    IM_ERR_UNSUPPORTED);
    expect_template(folder, "{'chat_template':[]}", "named default", IM_ERR_UNSUPPORTED);
    expect_template(folder, "{'chat_template':1}", "a number", IM_ERR_FORMAT);
    expect_template(folder, "{'chat_template':[1]}", "no value", IM_ERR_FORMAT);
    write_file(folder, "chat_template.jinja", "j");
    expect_template(folder, "{'chat_template':'a'}", "j", IM_OK);
    for (size_t i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, file[i]);
        unlink(path);
    }
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_tokenizers_give_the_reference_ids),
        cmocka_unit_test(folders_give_the_reference_ids),
        cmocka_unit_test(the_small_file_works),
        cmocka_unit_test(one_change_each),
        cmocka_unit_test(punctuation_is_that_of_the_reference),
        cmocka_unit_test(hostile_rules_stay_cheap),
        cmocka_unit_test(unknown_constructs_are_refused_by_name),
        cmocka_unit_test(impossible_vocabularies_are_refused),
        cmocka_unit_test(broken_json_is_refused),
        cmocka_unit_test(cut_files_are_refused),
        cmocka_unit_test(every_failing_allocation_is_an_error),
        cmocka_unit_test(tokens_around_a_text),
        cmocka_unit_test(wrong_configurations_are_refused),
        cmocka_unit_test(configuration_adds_tokens),
        cmocka_unit_test(rows_of_the_model),
        cmocka_unit_test(plain_spans_stay_plain),
        cmocka_unit_test(chat_templates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
