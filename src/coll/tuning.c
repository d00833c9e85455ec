/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads parameter tune. */
#include "coll/tuning.h"

#include "util/log.h"
#include "util/number.h"
#include "util/spelling.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define NAME_MAX_BYTES 40
#define SHOWN_MOST 60 /* characters of what is refused */

/* What is left to be read, and where a message goes. */
typedef struct reader {
    const char *text; /* all of it */
    const char *at;
    char *message;
    size_t size;
} reader_t;

typedef struct word {
    const char *at;
    size_t length;
} word_t;

static word_t next_word(reader_t *reader)
{
    word_t word = {.at = reader->at, .length = strcspn(reader->at, ":,")};

    reader->at += word.length;
    return word;
}

static int is_word(const word_t *word, const char *text)
{
    return strlen(text) == word->length && strncasecmp(word->at, text, word->length) == 0;
}

static mpath_status_t refuse(const reader_t *reader, const word_t *word, const char *why)
{
    int most = word->length < SHOWN_MOST ? (int)word->length : SHOWN_MOST;

    snprintf(reader->message, reader->size, "tune, character %zu: '%.*s%s' %s", (size_t)(word->at - reader->text) + 1,
             most, word->at, word->length > SHOWN_MOST ? "..." : "", why);
    return MPATH_ERR_PARAM;
}

/* "is no algorithm of alltoallv, did you mean 'planned'? There are inline, planned, ..." */
static mpath_status_t refuse_name(const reader_t *reader, const word_t *word, const char *what,
                                  const char *const *names)
{
    char why[MPATH_TUNING_MESSAGE / 2], given[NAME_MAX_BYTES];
    const char *nearest;
    size_t used;

    snprintf(given, sizeof(given), "%.*s", (int)word->length, word->at);
    nearest = mpath_spelling_nearest(given, names);
    used    = (size_t)snprintf(why, sizeof(why), "is no %s%s%s%s There are", what,
                            nearest != NULL ? "; did you mean '" : "", nearest != NULL ? nearest : "",
                            nearest != NULL ? "'?" : ".");
    for (size_t i = 0; names[i] != NULL && used < sizeof(why); i++) {
        used += (size_t)snprintf(why + used, sizeof(why) - used, "%s %s", i > 0 ? "," : "", names[i]);
    }
    return refuse(reader, word, why);
}

static mpath_status_t read_collective(reader_t *reader, mpath_operation_t *collective_p)
{
    static const char *const names[] = {"alltoallv", "allreduce", "reduce_scatter", "allgather", NULL};
    word_t word                      = next_word(reader);

    *collective_p = mpath_collective_find(word.at, word.length);
    return *collective_p != 0 ? MPATH_OK : refuse_name(reader, &word, "collective", names);
}

static mpath_status_t read_algorithm(const reader_t *reader, const word_t *word, mpath_tuning_rule_t *rule)
{
    const mpath_algorithm_t *rows = mpath_algorithms(rule->collective);
    word_t name                   = {.at = word->at + 1, .length = word->length - 1};
    const char *names[MPATH_ALGORITHM_ROWS + 1];
    char what[NAME_MAX_BYTES + 16];
    size_t count = 0;

    for (; rows[count].name != NULL; count++) {
        if (is_word(&name, rows[count].name)) {
            rule->algorithm = &rows[count];
            return MPATH_OK;
        }
        names[count] = rows[count].name;
    }
    names[count] = NULL;
    snprintf(what, sizeof(what), "algorithm of %s", mpath_collective_name(rule->collective));
    return refuse_name(reader, &name, what, names);
}

static mpath_status_t read_range(const reader_t *reader, const word_t *word, mpath_tuning_rule_t *rule)
{
    const char *dash = memchr(word->at, '-', word->length), *high_at;
    int64_t low, high;
    size_t high_length;

    if (dash == NULL) {
        return refuse(reader, word, "is neither @ALGORITHM nor LOW-HIGH nor 'host' nor 'device'");
    }
    high_at     = dash + 1;
    high_length = word->length - (size_t)(high_at - word->at);
    if (mpath_number_parse(word->at, (size_t)(dash - word->at), MPATH_NUMBER_BYTES, 0, INT64_MAX, &low) != MPATH_OK) {
        return refuse(reader, word, "is no range: bytes such as 4k-1m or 64k-inf are");
    }
    rule->from_bytes = (uint64_t)low;
    if (high_length == 3 && strncasecmp(high_at, "inf", 3) == 0) {
        rule->to_bytes = UINT64_MAX;
        return MPATH_OK;
    }
    if (mpath_number_parse(high_at, high_length, MPATH_NUMBER_BYTES, 0, INT64_MAX, &high) != MPATH_OK || high <= low) {
        return refuse(reader, word, "is no range: bytes such as 4k-1m or 64k-inf are, the larger behind the dash");
    }
    rule->to_bytes = (uint64_t)high;
    return MPATH_OK;
}

static mpath_status_t read_item(const reader_t *reader, const word_t *word, mpath_tuning_rule_t *rule)
{
    if (word->length > 0 && word->at[0] == '@') {
        return read_algorithm(reader, word, rule);
    }
    if (is_word(word, "host") || is_word(word, "device")) {
        rule->insists  = 1;
        rule->memories = is_word(word, "host") ? MPATH_ON_HOST : MPATH_ON_DEVICE;
        return MPATH_OK;
    }
    return read_range(reader, word, rule);
}

static mpath_status_t read_rule(reader_t *reader, mpath_tuning_rule_t *rule)
{
    word_t all            = {.at = reader->at, .length = strcspn(reader->at, ",")};
    mpath_status_t status = read_collective(reader, &rule->collective);

    rule->to_bytes = UINT64_MAX;
    rule->memories = MPATH_ON_HOST | MPATH_ON_DEVICE;
    while (status == MPATH_OK && *reader->at == ':') {
        word_t word;

        reader->at++;
        word   = next_word(reader);
        status = read_item(reader, &word, rule);
    }
    if (status == MPATH_OK && rule->algorithm == NULL) {
        status = refuse(reader, &all, "names no algorithm: @NAME is missing");
    }
    if (status == MPATH_OK && (rule->memories & rule->algorithm->memories) == 0) {
        status = refuse(reader, &all, "is for memory that the algorithm does not know");
    }
    if (status == MPATH_OK) {
        rule->memories &= rule->algorithm->memories;
    }
    return status;
}

mpath_status_t mpath_tuning_parse(const char *text, mpath_tuning_t *tuning, char *message, size_t size)
{
    reader_t reader       = {.text = text, .at = text, .message = message, .size = size};
    mpath_status_t status = MPATH_OK;

    memset(tuning, 0, sizeof(*tuning));
    while (status == MPATH_OK && *reader.at != '\0') {
        word_t rest = {.at = reader.at, .length = strlen(reader.at)};

        if (tuning->count == MPATH_TUNING_RULES) {
            status = refuse(&reader, &rest, "is too much: 32 rules at most");
            break;
        }
        status = read_rule(&reader, &tuning->rules[tuning->count++]);
        if (status == MPATH_OK && *reader.at == ',') {
            reader.at++;
            if (*reader.at == '\0') {
                rest   = (word_t){.at = reader.at - 1, .length = 1};
                status = refuse(&reader, &rest, "has no rule behind it");
            }
        }
    }
    if (status != MPATH_OK) {
        memset(tuning, 0, sizeof(*tuning));
    }
    return status;
}

/* -- the parameters that this one replaces -- */

/* The row's name; NULL: nothing is forced. */
static const char *old_routes(int value)
{
    static const char *const names[] = {
        [MPATH_ROUTES_PREVIOUS] = "previous", [MPATH_ROUTES_DIRECT] = "direct", [MPATH_ROUTES_LANES] = "planned"};

    return names[value];
}

static const char *old_algorithm(int value)
{
    static const char *const names[] = {[MPATH_ALGORITHM_PREVIOUS] = "previous",
                                        [MPATH_ALGORITHM_SMALL]    = "inline",
                                        [MPATH_ALGORITHM_LANES]    = "pipeline"};

    return names[value];
}

static void add_old(mpath_tuning_t *tuning, mpath_operation_t collective, const char *name)
{
    mpath_tuning_rule_t *rule = &tuning->rules[tuning->count];

    if (name == NULL) {
        return;
    }
    if (tuning->count < MPATH_TUNING_RULES && !mpath_tuning_has(tuning, collective, MPATH_ON_HOST | MPATH_ON_DEVICE)) {
        *rule = (mpath_tuning_rule_t){
            .collective = collective, .algorithm = mpath_algorithm_find(collective, name), .to_bytes = UINT64_MAX};
        rule->memories = rule->algorithm->memories;
        tuning->count++;
    }
}

void mpath_tuning_read(const mpath_settings_t *settings, int says, mpath_tuning_t *tuning)
{
    static atomic_int said;
    char message[MPATH_TUNING_MESSAGE];

    says = says && atomic_exchange(&said, 1) == 0;
    if (mpath_tuning_parse(settings->tune, tuning, message, sizeof(message)) != MPATH_OK && says) {
        mpath_error("parameter %s; nothing is forced", message);
    }
    add_old(tuning, MPATH_OPERATION_ALLTOALLV, old_routes(settings->alltoallv_algorithm));
    add_old(tuning, MPATH_OPERATION_ALLREDUCE, old_algorithm(settings->allreduce_algorithm));
    add_old(tuning, MPATH_OPERATION_REDUCE_SCATTER, old_algorithm(settings->reduce_scatter_algorithm));
    add_old(tuning, MPATH_OPERATION_ALLGATHER, old_algorithm(settings->allgather_algorithm));
}

static const mpath_tuning_rule_t *rule_of(const mpath_tuning_t *tuning, mpath_operation_t collective, uint32_t memory,
                                          uint64_t bytes)
{
    for (int i = tuning->count - 1; i >= 0; i--) {
        const mpath_tuning_rule_t *rule = &tuning->rules[i];

        if (rule->collective == collective && (rule->memories & memory) != 0 && bytes >= rule->from_bytes &&
            (bytes < rule->to_bytes || rule->to_bytes == UINT64_MAX)) {
            return rule;
        }
    }
    return NULL;
}

const mpath_algorithm_t *mpath_tuning_find(const mpath_tuning_t *tuning, mpath_operation_t collective, uint32_t memory,
                                           uint64_t bytes)
{
    const mpath_tuning_rule_t *rule = rule_of(tuning, collective, memory, bytes);

    return rule != NULL ? rule->algorithm : NULL;
}

void mpath_tuning_force(const mpath_tuning_t *tuning, mpath_question_t *question)
{
    const mpath_tuning_rule_t *rule = rule_of(tuning, question->collective, question->memory, question->bytes);

    question->forced  = rule != NULL ? rule->algorithm : NULL;
    question->insists = rule != NULL && rule->insists;
}

int mpath_tuning_has(const mpath_tuning_t *tuning, mpath_operation_t collective, uint32_t memory)
{
    int has = 0;

    for (int i = 0; i < tuning->count; i++) {
        has |= tuning->rules[i].collective == collective && (tuning->rules[i].memories & memory) != 0;
    }
    return has;
}

int mpath_tuning_may_carry(const mpath_tuning_t *tuning, const mpath_settings_t *settings, mpath_operation_t collective,
                           uint32_t memory, uint64_t bytes)
{
    const mpath_algorithm_t *forced = mpath_tuning_find(tuning, collective, memory, bytes);

    if (settings->gate == MPATH_GATE_NEVER) {
        return 0;
    }
    if (forced != NULL) {
        return !mpath_algorithm_is_previous(forced);
    }
    return settings->gate == MPATH_GATE_ALWAYS || bytes >= settings->symmetric_min_bytes;
}

int mpath_tuning_is_never(const mpath_tuning_t *tuning, mpath_operation_t collective)
{
    const mpath_tuning_rule_t *last = NULL;

    for (int i = 0; i < tuning->count; i++) {
        last = tuning->rules[i].collective == collective ? &tuning->rules[i] : last;
    }
    return last != NULL && mpath_algorithm_is_previous(last->algorithm) &&
           last->memories == (MPATH_ON_HOST | MPATH_ON_DEVICE) && last->from_bytes == 0 && last->to_bytes == UINT64_MAX;
}
