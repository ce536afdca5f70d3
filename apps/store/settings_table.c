/* SPDX-License-Identifier: Apache-2.0 */
#include "store/settings.h"

const setting_about setting_table[] = {
    {"mode", SETTING_TEXT, "desktop", "desktop: one person, short queues; server: many clients, deadlines", "serve start", 0, 0,
     "desktop server"},
    {"model", SETTING_TEXT, "the model registered last", "what 'ironmule start' serves", "start", 0, 0, NULL},
    {"browser", SETTING_YES_NO, "true", "'ironmule start' opens the chat page", "start", 0, 0, NULL},
    {"host", SETTING_TEXT, "127.0.0.1", "address to listen on; others can reach it only with an api_key_file", "serve", 0, 0, NULL},
    {"port", SETTING_INT, "8080", "port to listen on", "serve", 0, 65535, NULL},
    {"api_key_file", SETTING_PATH, "none", "file with the keys that clients must have, one a line", "serve", 0, 0, NULL},
    {"tls_cert", SETTING_PATH, "none", "certificate chain (PEM): speak TLS", "serve", 0, 0, NULL},
    {"tls_key", SETTING_PATH, "none", "its private key (PEM)", "serve", 0, 0, NULL},
    {"parallel", SETTING_INT, "4, as a server 16", "answers computed at the same time", "serve", 1, 256, NULL},
    {"queue", SETTING_INT, "32, as a server 512", "answers that may wait", "serve", 0, 1000000, NULL},
    {"context", SETTING_INT, "as the model and the memory allow", "positions for prompt and answer", "serve chat generate", 2,
     16777216, NULL},
    {"max_tokens", SETTING_INT, "the context", "longest answer when a request does not say", "serve", 1, 16777216, NULL},
    {"max_step_ms", SETTING_NUMBER, "100, as a server 200", "a newcomer's prompt holds running answers up no longer", "serve", 0,
     1e6, NULL},
    {"cache_ram", SETTING_SIZE, "512M, or what is spare", "prefix cache in memory", "serve", 0, 0, NULL},
    {"cache_dir", SETTING_PATH, "none", "folder that keeps the prefix cache over restarts", "serve", 0, 0, NULL},
    {"cache_disk", SETTING_SIZE, "4G", "size of that folder at most", "serve", 0, 0, NULL},
    {"log_format", SETTING_TEXT, "text", "the server's log: text or json", "serve", 0, 0, "text json"},
    {"log_level", SETTING_TEXT, "info", "the server's log: debug, info or warning", "serve", 0, 0, "debug info warning"},
    {"threads", SETTING_INT, "one a physical core", "threads that compute", NULL, 1, 1024, NULL},
    {"device", SETTING_TEXT, "auto", "auto, cpu, cuda or cuda:N", NULL, 0, 0, NULL},
    {"cpu", SETTING_TEXT, "the best here", "kernels up to this level", NULL, 0, 0, "c avx2 avxvnni avx512 amx neon i8mm"},
    {"model_folders", SETTING_TEXT, "none", "folders with models, beside the hub's cache, separated by colons", "models", 0, 0,
     NULL},
};
const size_t setting_count = sizeof setting_table / sizeof *setting_table;
