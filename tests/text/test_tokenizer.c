/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokenizers on small vocabularies. Expected ids, cuts and normal forms come from Hugging Face's library (tests/data/tokenizers/README.md)
 * or are counted by hand.
 */
#include "text/tokenizer/nfc.h"
#include "text/tokenizer/pretokenize.h"
#include "vocab_fixture.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const im__encode_options parsed = {.parse_special = true}, plain = {0};

typedef struct toy {
    vocab_fixture f;
    im__tokenizer *t;
} toy;

static toy toy_new(const char *description)
{
    toy y;
    json_t *vocab = vocab_json_parse(description);
    vocab_fixture_init(&y.f, vocab);
    y.t = vocab_fixture_tokenizer(&y.f);
    json_decref(vocab);
    return y;
}

static void toy_free(toy *y)
{
    im__tokenizer_free(y->t);
    vocab_fixture_clear(&y->f);
}

static void expect(const toy *y, const char *text, const im__encode_options *options, const char *ids)
{
    json_t *want = vocab_json_parse(ids);
    assert_true(vocab_check_ids(y->t, text, strlen(text), options, want));
    json_decref(want);
}

static void expect_text(const toy *y, const char *ids, bool show_special, const char *want)
{
    json_t *list = vocab_json_parse(ids);
    assert_true(vocab_check_decode(y->t, list, show_special, want, strlen(want)));
    json_decref(list);
}

/* ---- against the reference ---- */

static void check_reference(const char *name, json_t *entry)
{
    vocab_fixture f;
    json_t *one;
    size_t i, failed = 0;
    vocab_fixture_init(&f, json_object_get(entry, "vocab"));
    im__tokenizer *t = vocab_fixture_tokenizer(&f);
    json_array_foreach(json_object_get(entry, "cases"), i, one)
    {
        failed += !vocab_check_string(t, json_array_get(one, 0), &parsed, json_array_get(one, 1));
    }
    json_t *bos = json_object_get(entry, "adds_bos");
    assert_int_equal(im__tokenizer_adds_bos(t), json_is_integer(bos));
    if (json_is_integer(bos)) assert_int_equal(im__tokenizer_bos(t), json_integer_value(bos));
    im__tokenizer_free(t);
    vocab_fixture_clear(&f);
    if (failed > 0) fail_msg("%s: %zu differ", name, failed);
}

static void small_vocabularies_give_the_reference_ids(void **state)
{
    (void)state;
    json_t *zoo = vocab_json_load("zoo.json"), *entry;
    const char *name;
    assert_int_equal(json_object_size(zoo), 7);
    json_object_foreach(zoo, name, entry) { check_reference(name, entry); }
    json_decref(zoo);
}

typedef struct cuts {
    const json_t *lengths;
    size_t at;
    bool same;
} cuts;

static bool compare_cut(void *context, const char *piece, size_t n)
{
    cuts *c = context;
    (void)piece;
    c->same = c->same && (json_int_t)n == json_integer_value(json_array_get(c->lengths, c->at));
    c->at++;
    return true;
}

static void patterns_cut_as_the_reference_does(void **state)
{
    (void)state;
    json_t *splits = vocab_json_load("splits.json"), *texts = json_object_get(splits, "texts"), *rows;
    const char *name;
    size_t failed = 0;
    assert_int_equal(json_array_size(texts), 150);
    json_object_foreach(json_object_get(splits, "lengths"), name, rows)
    {
        const im__pre *pre = im__pre_find(name, strlen(name));
        assert_non_null(pre);
        for (size_t i = 0; i < json_array_size(texts); i++) {
            const json_t *text = json_array_get(texts, i);
            cuts c = {.lengths = json_array_get(rows, i), .same = true};
            im__pre_split(pre, json_string_value(text), json_string_length(text), compare_cut, &c);
            if (c.same && c.at == json_array_size(c.lengths)) continue;
            print_message("%s cuts text %zu in another way\n", name, i);
            failed++;
        }
    }
    json_decref(splits);
    assert_int_equal(failed, 0);
}

static void normal_form_is_the_reference(void **state)
{
    (void)state;
    json_t *rows = vocab_json_load("nfc.json"), *row;
    size_t i;
    assert_int_equal(json_array_size(rows), 200);
    json_array_foreach(rows, i, row)
    {
        const json_t *from = json_array_get(row, 0), *to = json_array_get(row, 1);
        im__buf out = {0};
        im__nfc_append(&out, json_string_value(from), json_string_length(from));
        assert_int_equal(out.len, json_string_length(to));
        if (out.len > 0) assert_memory_equal(out.data, json_string_value(to), out.len);
        if (im__nfc_is_trivial(json_string_value(from), json_string_length(from))) assert_true(json_equal(from, to));
        im__buf_free(&out);
    }
    json_decref(rows);
}

static void normal_form_keeps_broken_bytes_and_long_runs_of_marks(void **state)
{
    (void)state;
    im__buf out = {0}, marks = {0};
    im__nfc_append(&out, "e\xcc\x81\xff\xcc", 5);
    assert_int_equal(out.len, 4);
    assert_memory_equal(out.data, "\xc3\xa9\xff\xcc", 4);
    for (int i = 0; i < 100000; i++) im__buf_puts(&marks, "\xcc\x81\xcc\xa3"); /* acute (230), dot below (220) */
    out.len = 0;
    im__nfc_append(&out, marks.data, marks.len);
    assert_int_equal(out.len, marks.len);
    assert_memory_equal(out.data, "\xcc\xa3\xcc\xa3", 4); /* all that belong below come first */
    assert_memory_equal(out.data + out.len - 4, "\xcc\x81\xcc\x81", 4);
    im__buf_free(&out);
    im__buf_free(&marks);
}

/* ---- control tokens and ends ---- */

#define CHAT                                                                                                                       \
    "{'model':'gpt2','pre':'gpt-2','eos':4,'tokens':['<','|','e','n','<|e|>','>','x','<|e','</s>','<|im_end|>','<|e|><|e|>'],"     \
    "'types':[1,1,1,1,3,1,1,4,4,3,3],'merges':[]}"

static void control_tokens_only_where_allowed(void **state)
{
    (void)state;
    toy y = toy_new(CHAT);
    expect(&y, "x<|e|>x", &parsed, "[6,4,6]");
    expect(&y, "x<|e|>x", &plain, "[6,7,1,5,6]"); /* the user-defined <|e is always cut out */
    expect(&y, "<|e|><|e|>", &parsed, "[10]");    /* the longest wins */
    const im__span typed = {1, 7};
    const im__encode_options spans = {.parse_special = true, .plain = &typed, .plain_count = 1};
    expect(&y, "x<|e|>x<|e|>", &spans, "[6,7,1,5,6,4]");
    const im__span touching[] = {{0, 1}, {5, 6}};
    const im__encode_options touched = {.parse_special = true, .plain = touching, .plain_count = 2};
    expect(&y, "<|e|><|e|><|e|>", &touched, "[7,1,5,7,1,5,4]");
    const im__span behind[] = {{0, 0}, {5, 5}, {10, 10}}; /* empty spans touch nothing */
    const im__encode_options empty = {.parse_special = true, .plain = behind, .plain_count = 3};
    expect(&y, "<|e|>x<|e|>", &empty, "[4,6,4]");
    const im__span between = {5, 6};
    const im__encode_options near = {.parse_special = true, .plain = &between, .plain_count = 1};
    expect(&y, "<|e|>x<|e|>", &near, "[4,6,4]");
    expect_text(&y, "[6,4,6]", false, "xx");
    expect_text(&y, "[6,4,6]", true, "x<|e|>x");
    toy_free(&y);
}

static void ends_are_the_keys_and_the_known_control_tokens(void **state)
{
    (void)state;
    toy y = toy_new(CHAT);
    const int32_t more[] = {6, 6};
    assert_true(im__tokenizer_is_end(y.t, 4));  /* eos */
    assert_true(im__tokenizer_is_end(y.t, 9));  /* <|im_end|>, a control token */
    assert_false(im__tokenizer_is_end(y.t, 8)); /* </s> is a tag here, user-defined */
    assert_false(im__tokenizer_is_end(y.t, 6));
    assert_false(im__tokenizer_is_end(y.t, -1));
    im__tokenizer_free(y.t);
    y.f.source.end = more;
    y.f.source.end_count = 2;
    y.t = vocab_fixture_tokenizer(&y.f);
    assert_true(im__tokenizer_is_end(y.t, 6));
    toy gemma = toy_new("{'model':'gpt2','pre':'dbrx','eos':1,'tokens':['<eos>','<end_of_turn>','x'],'types':[3,3,1]}");
    assert_true(im__tokenizer_is_end(gemma.t, 0)); /* the end of a text ends an answer too where the key names the end of a turn */
    assert_true(im__tokenizer_is_end(gemma.t, 1));
    assert_false(im__tokenizer_is_end(gemma.t, 2));
    toy_free(&gemma);
    toy_free(&y);
}

static void message_end_is_no_end_where_answers_have_several(void **state)
{
    (void)state;
    toy phi = toy_new("{'model':'gpt2','pre':'dbrx','tokens':['<|end|>','x'],'types':[3,1]}");
    toy oss = toy_new("{'model':'gpt2','pre':'gpt-4o','tokens':['<|end|>','<|return|>','x'],'types':[3,3,1]}");
    assert_true(im__tokenizer_is_end(phi.t, 0));
    assert_false(im__tokenizer_is_end(oss.t, 0));
    assert_true(im__tokenizer_is_end(oss.t, 1));
    toy_free(&phi);
    toy_free(&oss);
}

static void bos_and_eos_are_put_where_the_vocabulary_wants_them(void **state)
{
    (void)state;
    const im__encode_options both = {.parse_special = true, .add_bos = true, .add_eos = true};
    toy y = toy_new(
        "{'model':'gpt2','pre':'gpt-2','bos':0,'eos':1,'add_bos':1,'add_eos':1,'tokens':['<b>','<e>','x'],'types':[3,3,1]}");
    expect(&y, "x", &both, "[0,2,1]");
    expect(&y, "", &both, "[0,1]");
    expect(&y, "x", &parsed, "[2]");
    toy_free(&y);
    y = toy_new("{'model':'gpt2','pre':'llama-bpe','bos':0,'tokens':['<b>','x'],'types':[3,1]}");
    expect(&y, "x", &both, "[0,1]"); /* the family wants one when the file does not say */
    toy_free(&y);
    y = toy_new("{'model':'gpt2','pre':'llama-bpe','bos':0,'add_bos':0,'tokens':['<b>','x'],'types':[3,1]}");
    expect(&y, "x", &both, "[1]");
    toy_free(&y);
}

/* ---- byte level ---- */

static void whole_pieces_win_where_the_family_says_so(void **state)
{
    (void)state;
    const char *pre[] = {"llama-bpe", "dbrx"}, *want[] = {"[3,4]", "[0,1,2,4]"};
    for (int i = 0; i < 2; i++) {
        toy y = toy_new("{'model':'gpt2','pre':'default','tokens':['a','b','c','abc','\xc4\xa0'],'merges':[]}");
        im__tokenizer_free(y.t);
        y.f.source.pre = (im__bytes){pre[i], strlen(pre[i])};
        y.t = vocab_fixture_tokenizer(&y.f);
        expect(&y, "abc ", &parsed, want[i]);
        toy_free(&y);
    }
}

static void text_is_normalised_where_the_family_does(void **state)
{
    (void)state;
    toy y = toy_new("{'model':'gpt2','pre':'qwen2','tokens':['\xc3\x83','\xc2\xa9','e']}"); /* the bytes C3 and A9 */
    expect(&y, "e\xcc\x81", &parsed, "[0,1]");
    toy_free(&y);
    y = toy_new("{'model':'gpt2','pre':'dbrx','tokens':['\xc3\x83','\xc2\xa9','e']}");
    expect(&y, "e\xcc\x81", &parsed, "[2]");
    toy_free(&y);
}

static void bytes_without_a_token_vanish(void **state)
{
    (void)state;
    toy y = toy_new("{'model':'gpt2','pre':'gpt-2','tokens':['a','b','ab'],'merges':['a b']}");
    expect(&y,
           "a\x04"
           "b",
           &parsed, "[0,1]");          /* three pieces: letters, control character, letters */
    expect(&y, "axb", &parsed, "[2]"); /* one piece of letters: the neighbours meet */
    toy_free(&y);
}

static void half_characters_wait_and_broken_ones_are_replaced(void **state)
{
    (void)state;
    /* the bytes F0 9F 99 82 (a smile) and C3, in the byte alphabet */
    toy y = toy_new("{'model':'gpt2','pre':'gpt-2','tokens':['\xc3\xb0\xc5\x81','\xc4\xbb','\xc4\xa4','x','\xc3\x83']}");
    expect_text(&y, "[0,1,2]", false, "\xf0\x9f\x99\x82");
    expect_text(&y, "[3,0,1]", false, "x\xef\xbf\xbd");             /* cut: one for the beginning */
    expect_text(&y, "[0,1,3]", false, "\xef\xbf\xbdx");             /* broken, then good */
    expect_text(&y, "[0,4,3]", false, "\xef\xbf\xbd\xef\xbf\xbdx"); /* a beginning after a beginning */
    expect_text(&y, "[2,2]", false, "\xef\xbf\xbd\xef\xbf\xbd");    /* stray continuations, each by itself */
    expect_text(&y, "[3,99,-5,3]", false, "xx");                    /* ids that do not exist give nothing */
    toy_free(&y);
}

static void a_character_goes_out_at_once_when_it_is_whole(void **state)
{
    (void)state;
    toy y = toy_new("{'model':'gpt2','pre':'gpt-2','tokens':['\xc3\xb0\xc5\x81','\xc4\xbb','\xc4\xa4','x']}");
    im__decoder d;
    im__buf out = {0};
    im__decoder_init(&d, y.t, false);
    im__decoder_feed(&d, 0, &out);
    im__decoder_feed(&d, 1, &out);
    assert_int_equal(out.len, 0);
    im__decoder_feed(&d, 2, &out);
    assert_int_equal(out.len, 4);
    im__decoder_finish(&d, &out);
    assert_int_equal(out.len, 4);
    im__buf_free(&out);
    toy_free(&y);
}

static void pieces_are_raw_bytes(void **state)
{
    (void)state;
    toy y = toy_new("{'model':'gpt2','pre':'gpt-2','tokens':['\xc4\xa0the','\xc3\xb0\xc5\x81','<\xef\xbd\x9c\xc4\xa0>','<b>'],'"
                    "types':[1,1,4,3]}");
    im__buf out = {0};
    for (int32_t id = -1; id < 5; id++) im__tokenizer_piece(y.t, id, false, &out);
    assert_int_equal(out.len, 4 + 2 + 7);
    assert_memory_equal(out.data, " the\xf0\x9f<\xef\xbd\x9c\xc4\xa0>",
                        out.len); /* an added token outside the alphabet stands for itself */
    assert_int_equal(im__tokenizer_raw(y.t, 0).len, 5);
    assert_null(im__tokenizer_raw(y.t, 4).ptr);
    assert_int_equal(im__tokenizer_find(y.t, "<b>", 3), 3);
    assert_int_equal(im__tokenizer_find(y.t, "<b", 2), -1);
    im__buf_free(&out);
    toy_free(&y);
}

/* ---- scores ---- */

#define MARK "\xe2\x96\x81"

static void scores_decide_and_ties_go_to_the_longer_left_part(void **state)
{
    (void)state;
    toy y = toy_new("{'model':'llama','unk':0,'add_space_prefix':0,'types':[2,1,1,1,1,1,1,1],"
                    "'tokens':['<unk>','a','b','c','ab','bc','abc','" MARK "'],'scores':[0,0,0,0,-2,-1,-3,0]}");
    expect(&y, "abc", &parsed, "[6]"); /* bc first, then a with it */
    expect(&y, "ab", &parsed, "[4]");
    expect(&y, "abcc", &parsed, "[6,3]");
    toy_free(&y);
    /* b a a b: aa comes first; then baa and aab have the same score, and aab is made of two letters and one, not one and two */
    y = toy_new("{'model':'llama','unk':0,'add_space_prefix':0,'types':[2,1,1,1,1,1],"
                "'tokens':['<unk>','a','b','aa','baa','aab'],'scores':[0,0,0,-1,-2,-2]}");
    expect(&y, "baab", &parsed, "[2,5]");
    toy_free(&y);
    /* the same length on the left, a longer part on the right */
    y = toy_new("{'model':'llama','unk':0,'add_space_prefix':0,'types':[2,1,1,1,1,1,1],"
                "'tokens':['<unk>','q','r','s','qr','ss','rss'],'scores':[0,0,0,0,-5,-1,-5]}");
    expect(&y, "qrss", &parsed, "[1,6]");
    toy_free(&y);
    /* -0 and 0 are one score: the lower id is left */
    y = toy_new("{'model':'llama','unk':0,'add_space_prefix':0,'types':[2,1,1,1,1,1],"
                "'tokens':['<unk>','a','b','c','ab','bc'],'scores':[0,0,0,0,-0.0,0.0]}");
    expect(&y, "abc", &parsed, "[4,3]");
    toy_free(&y);
}

static void unknown_characters_become_bytes_or_one_unknown(void **state)
{
    (void)state;
    toy y = toy_new("{'model':'llama','unk':0,'add_space_prefix':0,'types':[2,1,6,6,6],"
                    "'tokens':['<unk>','a','<0xC3>','<0xA9>','<0x41>'],'scores':[0,0,0,0,0]}");
    expect(&y, "a\xc3\xa9", &parsed, "[1,2,3]");
    expect(&y,
           "\xc3\xaa\xc3\xab"
           "a",
           &parsed, "[0,1]");             /* bytes C3 AA, C3 AB: not all have tokens; two unknown characters are one */
    expect(&y, "<0xC3>", &parsed, "[0]"); /* a byte token is not text */
    expect(&y, "\xc3", &parsed, "[2]");   /* half a character */
    expect_text(&y, "[1,2,3]", false, "a\xc3\xa9");
    expect_text(&y, "[1,2]", false, "a\xef\xbf\xbd");
    expect_text(&y, "[2,2,3,1]", false,
                "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"
                "a"); /* one for each byte of a broken row */
    expect_text(&y, "[2,4,4,1,4]", false,
                "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"
                "aA"); /* up to the next token that is no byte */
    expect_text(&y, "[2,1,3]", false,
                "\xef\xbf\xbd"
                "a\xef\xbf\xbd");
    toy_free(&y);
}

static void spaces_are_written_as_the_vocabulary_writes_them(void **state)
{
    (void)state;
    toy y = toy_new("{'model':'llama','unk':0,'types':[2,1,1,1,1],'tokens':['<unk>','" MARK "','a','" MARK "a','a" MARK
                    "'],'scores':[0,0,0,-1,-2]}");
    expect(&y, "a", &parsed, "[3]");     /* a space goes in front */
    expect(&y, "a a", &parsed, "[3,3]"); /* the better score, although a token with a space inside exists */
    expect(&y, " a", &parsed, "[1,3]");
    expect(&y, "a ", &parsed, "[3,1]");
    expect_text(&y, "[3,3]", false, "a a");
    expect_text(&y, "[1,3]", false, " a");
    toy_free(&y);
    y = toy_new(
        "{'model':'llama','unk':0,'add_space_prefix':0,'types':[2,1,1,1],'tokens':['<unk>',' ','a',' a'],'scores':[0,0,0,-1]}");
    expect(&y, "a a", &parsed, "[2,3]"); /* real spaces */
    expect_text(&y, "[3,3]", false, " a a");
    toy_free(&y);
}

static void tokens_with_a_space_inside_are_found(void **state)
{
    (void)state;
    toy y = toy_new("{'model':'llama','unk':0,'add_space_prefix':0,'types':[2,1,1,1,1,1],"
                    "'tokens':['<unk>','" MARK "','a','b','" MARK "b','a" MARK "b'],'scores':[0,0,0,0,-1,-2]}");
    expect(&y, "a b", &parsed, "[5]");
    expect(&y, "b b", &parsed, "[3,4]");
    toy_free(&y);
    /* behind a letter that ends in the byte that the mark ends in */
    y = toy_new("{'model':'llama','unk':0,'add_space_prefix':0,'types':[2,1,1,1,1,1],"
                "'tokens':['<unk>','" MARK "','\xe3\x81\x81','b','" MARK "b','\xe3\x81\x81" MARK "b'],'scores':[0,0,0,0,-1,-2]}");
    expect(&y, "\xe3\x81\x81 b", &parsed, "[5]");
    toy_free(&y);
}

static void runs_of_spaces_are_cut_out_longest_first(void **state)
{
    (void)state;
    toy y = toy_new("{'model':'llama','unk':0,'add_space_prefix':0,'types':[2,1,1,1,4,4],"
                    "'tokens':['<unk>','" MARK "','a','" MARK "a','  ','   '],'scores':[0,0,0,-1,-1000,-1000]}");
    expect(&y, "a  a", &parsed, "[2,4,2]");
    expect(&y, "a    a", &parsed, "[2,5,3]");          /* three, and the fourth belongs to the word */
    expect(&y, "a" MARK MARK "a", &parsed, "[2,4,2]"); /* the mark itself */
    expect(&y, " " MARK MARK, &parsed, "[1,4]");       /* the run of marks is found before spaces are rewritten */
    expect(&y, MARK " ", &parsed, "[4]");
    expect_text(&y, "[2,5,3]", false, "a    a");
    toy_free(&y);
    y = toy_new("{'model':'llama','add_space_prefix':0,'types':[1,4,4],'tokens':['" MARK "','  ','" MARK MARK
                "'],'scores':[0,0,0]}");
    expect(&y, "  " MARK MARK, &parsed, "[1,1]"); /* two names for one run: the first */
    toy_free(&y);
}

static void control_tokens_of_phi_eat_white_space(void **state)
{
    (void)state;
    toy y = toy_new("{'model':'llama','unk':0,'add_space_prefix':0,'types':[2,1,3,3,3,1],"
                    "'tokens':['<unk>','a','<|user|>','<|assistant|>','<|end|>','" MARK "'],'scores':[0,0,0,0,0,0]}");
    expect(&y, "<|user|>\n a<|end|> \n\t<|assistant|>\n", &parsed, "[2,1,4,3]");
    toy_free(&y);
}

/* ---- length ---- */

#define DOUBLING "'tokens':['a','aa','aaaa','aaaaaaaa']"

static void *count_a_million(void *tokenizer) { return (void *)(uintptr_t)vocab_count_repeated(tokenizer, "a", 1000000); }

static void a_million_letters_fit_a_small_stack(void **state)
{
    (void)state;
    const char *description[] = {"{'model':'gpt2','pre':'llama-bpe'," DOUBLING ",'merges':['a a','aa aa','aaaa aaaa']}",
                                 "{'model':'llama','add_space_prefix':0," DOUBLING ",'scores':[0,-1,-2,-3]}"};
    for (int i = 0; i < 2; i++) {
        toy y = toy_new(description[i]);
        pthread_attr_t attr;
        pthread_t thread;
        void *count = NULL;
        pthread_attr_init(&attr);
        assert_int_equal(pthread_attr_setstacksize(&attr, 256 * 1024), 0);
        assert_int_equal(pthread_create(&thread, &attr, count_a_million, y.t), 0);
        pthread_join(thread, &count);
        pthread_attr_destroy(&attr);
        assert_int_equal((uintptr_t)count, 125000);
        toy_free(&y);
    }
}

static bool count_bytes(void *context, const char *piece, size_t n)
{
    (void)piece;
    *(size_t *)context += n;
    return n > 0;
}

/* Texts on which a pattern could be tried again and again from each place; the time limit of the test is what fails. */
static void no_pattern_is_slow_on_long_runs(void **state)
{
    (void)state;
    const char *unit[] = {"a",
                          "A",
                          "7",
                          " ",
                          "\n",
                          "!",
                          "\xcc\x81",
                          "\xe4\xb8\xad",
                          " \n",
                          ("\xe4\xb8\xad"
                           "A"),
                          "'",
                          "\xff",
                          " 😀"};
    for (size_t u = 0; u < sizeof unit / sizeof *unit; u++) {
        im__buf text = {0};
        while (text.len < 50000) im__buf_puts(&text, unit[u]);
        im__buf_puts(&text, "\xf0\x9f\x99\x82");
        const im__pre *last = NULL;
        for (const char *const *name = im__tokenizer_pre_names(); *name != NULL; name++) {
            const im__pre *pre = im__pre_find(*name, strlen(*name));
            if (last == NULL || pre->stage != last->stage) {
                size_t bytes = 0;
                assert_true(im__pre_split(pre, text.data, text.len, count_bytes, &bytes));
                assert_int_equal(bytes, text.len);
            }
            last = pre;
        }
        im__buf_free(&text);
    }
}

/* ---- refusals ---- */

static void refuse(const char *description, im_status status, const char *word)
{
    json_t *vocab = vocab_json_parse(description);
    vocab_fixture f;
    im__tokenizer *t = NULL;
    im_error err = {IM_OK, ""};
    vocab_fixture_init(&f, vocab);
    im_status got = im__tokenizer_new(&t, &f.source, &err);
    if (got != status || strstr(err.message, word) == NULL) fail_msg("%s: status %d, \"%s\"", description, (int)got, err.message);
    assert_null(t);
    vocab_fixture_clear(&f);
    json_decref(vocab);
}

static void impossible_vocabularies_are_refused(void **state)
{
    (void)state;
    refuse("{'model':'bert','tokens':['a']}", IM_ERR_UNSUPPORTED, "bert");
    refuse("{'model':'gpt2','pre':'nonsense','tokens':['a']}", IM_ERR_UNSUPPORTED, "--pre");
    refuse("{'model':'gpt2','pre':'nonsense','tokens':['a']}", IM_ERR_UNSUPPORTED, " llama-bpe ");
    refuse("{'model':'gpt2','tokens':[]}", IM_ERR_FORMAT, "0 tokens");
    refuse("{'model':'gpt2','tokens':['a'],'bos':1}", IM_ERR_FORMAT, "bos_token_id is 1");
    refuse("{'model':'gpt2','tokens':['a'],'eos':-2}", IM_ERR_FORMAT, "eos");
    refuse("{'model':'gpt2','tokens':['a'],'types':[7]}", IM_ERR_FORMAT, "type 7");
    refuse("{'model':'gpt2','tokens':['a','b'],'merges':['a b']}", IM_ERR_FORMAT, "merge 0");
    refuse("{'model':'gpt2','tokens':['a','aa'],'merges':['a a','aa']}", IM_ERR_FORMAT, "merge 1");
    refuse("{'model':'gpt2','tokens':['a','aa'],'merges':['']}", IM_ERR_FORMAT, "merge 0");
    refuse("{'model':'llama','tokens':['a']}", IM_ERR_FORMAT, "scores");
    refuse("{'model':'llama','tokens':['<0x0A>','<0x0A>'],'types':[6,6],'scores':[0,0]}", IM_ERR_FORMAT, "byte 0A");
    refuse("{'model':'llama','tokens':['<0xZZ>'],'types':[6],'scores':[0]}", IM_ERR_FORMAT, "<0xHH>");
}

static void an_endless_special_token_is_refused(void **state)
{
    (void)state;
    im__buf text = {0};
    im__buf_puts(&text, "{'model':'gpt2','types':[3],'tokens':['");
    for (int i = 0; i < 2000; i++) im__buf_puts(&text, "x");
    im__buf_puts(&text, "']}");
    refuse(text.data, IM_ERR_FORMAT, "2000 bytes");
    im__buf_free(&text);
}

static void every_failing_allocation_is_an_error(void **state)
{
    (void)state;
    json_t *zoo = vocab_json_load("zoo.json");
    const char *name[] = {"spm-gemma", "bpe-qwen2", "bpe-llama3"};
    const char text[] = "e\xcc\x81 hello  world <start_of_turn> 日本語 and the road";
    for (int v = 0; v < 3; v++) {
        vocab_fixture f;
        im__tokenizer *t = NULL;
        im__ids ids = {0};
        im_error err;
        vocab_fixture_init(&f, json_object_get(json_object_get(zoo, name[v]), "vocab"));
        for (long n = 1; t == NULL; n++) {
            im__alloc_fail_after(n);
            im_status status = im__tokenizer_new(&t, &f.source, &err);
            im__alloc_fail_after(0);
            assert_true(status == IM_OK || status == IM_ERR_MEMORY);
        }
        im_status status = IM_ERR_MEMORY;
        for (long n = 1; status != IM_OK; n++) {
            im__alloc_fail_after(n);
            status = im__tokenizer_encode(t, text, sizeof text - 1, &parsed, &ids, &err);
            im__alloc_fail_after(0);
            assert_true(status == IM_OK || (status == IM_ERR_MEMORY && ids.len == 0));
        }
        assert_true(ids.len > 10);
        im__ids_free(&ids);
        im__tokenizer_free(t);
        vocab_fixture_clear(&f);
    }
    json_decref(zoo);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_vocabularies_give_the_reference_ids),
        cmocka_unit_test(patterns_cut_as_the_reference_does),
        cmocka_unit_test(normal_form_is_the_reference),
        cmocka_unit_test(normal_form_keeps_broken_bytes_and_long_runs_of_marks),
        cmocka_unit_test(control_tokens_only_where_allowed),
        cmocka_unit_test(ends_are_the_keys_and_the_known_control_tokens),
        cmocka_unit_test(message_end_is_no_end_where_answers_have_several),
        cmocka_unit_test(bos_and_eos_are_put_where_the_vocabulary_wants_them),
        cmocka_unit_test(whole_pieces_win_where_the_family_says_so),
        cmocka_unit_test(bytes_without_a_token_vanish),
        cmocka_unit_test(half_characters_wait_and_broken_ones_are_replaced),
        cmocka_unit_test(a_character_goes_out_at_once_when_it_is_whole),
        cmocka_unit_test(pieces_are_raw_bytes),
        cmocka_unit_test(scores_decide_and_ties_go_to_the_longer_left_part),
        cmocka_unit_test(unknown_characters_become_bytes_or_one_unknown),
        cmocka_unit_test(spaces_are_written_as_the_vocabulary_writes_them),
        cmocka_unit_test(tokens_with_a_space_inside_are_found),
        cmocka_unit_test(text_is_normalised_where_the_family_does),
        cmocka_unit_test(runs_of_spaces_are_cut_out_longest_first),
        cmocka_unit_test(control_tokens_of_phi_eat_white_space),
        cmocka_unit_test(a_million_letters_fit_a_small_stack),
        cmocka_unit_test(no_pattern_is_slow_on_long_runs),
        cmocka_unit_test(impossible_vocabularies_are_refused),
        cmocka_unit_test(an_endless_special_token_is_refused),
        cmocka_unit_test(every_failing_allocation_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
