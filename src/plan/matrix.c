/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads matrices and tables of numbers that people and programs write. */
#include "plan/matrix.h"

#include "plan/fixed.h"
#include "util/log.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MAX_FILE_BYTES ((size_t)1 << 30)
#define MAX_RANKS 65536
#define MOST_BYTES (UINT64_MAX >> 2)
#define MOST_SCALE (1ull << 40)
#define MAX_DIGITS 25    /* kept of a number: times 2^40 they fit into 128 bits */
#define MAX_EXPONENT 400 /* of any double, and more than any value has */
#define LOAD_HELP "a load is a number (4096, 3.2768e+07)"
#define CELL_HELP                                                                                                         \
    "a cell is a number of bytes (4096, 3.2768e+07), perhaps with a unit (31.25M, 1GiB: powers of 1024), or in a matrix " \
    "of shares 0 to 1 of what the row's rank sends"

/* What a 1 of a table becomes, and how many bits its values have at most. */
#define TABLE_SCALE "1048576"
#define TABLE_BITS 40

/* A number as it stands: digits * 10^exponent, and the power of 1024 of its unit; -1: it has none. */
typedef struct number {
    mpath_u128_t digits;
    int exponent, unit;
} number_t;

typedef struct place {
    int line, column; /* line 0: there is none */
} place_t;

/* Where a reader of a text is, and what it has read. */
typedef struct reader {
    const char *what, *help; /* for messages: "matrix", and what a cell is */
    const char *name;
    const char *at, *end, *line_start;
    int line;
    char closing;  /* ends a cell as well: ']' in lists, '}' in patterns; else a blank */
    int is_scaled; /* by `scale` */
    number_t scale;
    uint64_t share_bytes; /* what a share of 1 stands for, once the matrix is known to be one of shares; else 0 */
    uint64_t *values;
    size_t count, capacity;
    size_t columns, rows, header_columns;
    int header_line;
    place_t fraction, not_share; /* the first cell that is no whole number of bytes, and the first that is no share */
} reader_t;

static int column(const reader_t *reader)
{
    return (int)(reader->at - reader->line_start) + 1;
}

static place_t here(const reader_t *reader)
{
    return (place_t){.line = reader->line, .column = column(reader)};
}

static mpath_status_t refuse(const reader_t *reader, place_t place, const char *why)
{
    mpath_error("%s %s:%d:%d: %s; the %s is not used", reader->what, reader->name, place.line, place.column, why,
                reader->what);
    return MPATH_ERR_PARAM;
}

static mpath_status_t push(reader_t *reader, uint64_t value)
{
    size_t capacity = reader->capacity == 0 ? 256 : reader->capacity * 2;
    uint64_t *values;

    if (reader->count == reader->capacity) {
        values = realloc(reader->values, capacity * sizeof(*values));
        if (values == NULL) {
            mpath_error("%s %s:%d: no memory for %zu entries; the %s is not used", reader->what, reader->name,
                        reader->line, capacity, reader->what);
            return MPATH_ERR_NO_MEMORY;
        }
        reader->values   = values;
        reader->capacity = capacity;
    }
    reader->values[reader->count++] = value;
    return MPATH_OK;
}

/* --- a number ---------------------------------------------------------------------------------------------------- */

static int is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static int is_comma(char c)
{
    return c == ',' || c == ';';
}

static int is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Nonzero: the reader is at the end of a line or of what counts of it. */
static int at_end(const reader_t *reader)
{
    return reader->at == reader->end || *reader->at == '\n' || *reader->at == '#';
}

static char peek(const reader_t *reader)
{
    return reader->at < reader->end ? *reader->at : '\n';
}

/* Digits, of which those that a double does not have are dropped; their number. */
static int read_digits(reader_t *reader, number_t *number, int is_fraction)
{
    static const mpath_u128_t most = (mpath_u128_t)10000000000000ull * 1000000000000ull; /* MAX_DIGITS of them */
    int count                      = 0;

    for (; is_digit(peek(reader)); reader->at++, count++) {
        if (number->digits < most / 10) {
            number->digits = number->digits * 10 + (mpath_u128_t)(*reader->at - '0');
            number->exponent -= is_fraction;
        } else if (!is_fraction && number->exponent < MAX_EXPONENT) {
            number->exponent++;
        }
    }
    return count;
}

static int read_exponent(reader_t *reader, number_t *number)
{
    int sign = 1, exponent = 0, count = 0;

    if (peek(reader) != 'e' && peek(reader) != 'E') {
        return 1;
    }
    reader->at++;
    if (peek(reader) == '+' || peek(reader) == '-') {
        sign = *reader->at++ == '-' ? -1 : 1;
    }
    for (; is_digit(peek(reader)); reader->at++, count++) {
        exponent = exponent < MAX_EXPONENT ? exponent * 10 + (*reader->at - '0') : exponent;
    }
    number->exponent += sign * exponent;
    return count > 0;
}

/* "k", "MiB", "G", "B" */
static void read_unit(reader_t *reader, number_t *number)
{
    static const char units[] = "kmgt";
    int power;

    number->unit = -1;
    for (power = 0; units[power] != '\0'; power++) {
        if (peek(reader) == units[power] || peek(reader) == units[power] - 'a' + 'A') {
            number->unit = power + 1;
            reader->at++;
            reader->at += peek(reader) == 'i';
            break;
        }
    }
    if (peek(reader) == 'B') {
        number->unit = number->unit < 0 ? 0 : number->unit;
        reader->at++;
    }
}

/* Nonzero: a number stood there, and a cell may end behind it. */
static int read_number(reader_t *reader, number_t *number)
{
    int digits;

    memset(number, 0, sizeof(*number));
    digits = read_digits(reader, number, 0);
    if (peek(reader) == '.') {
        reader->at++;
        digits += read_digits(reader, number, 1);
    }
    if (digits == 0 || !read_exponent(reader, number)) {
        return 0;
    }
    read_unit(reader, number);
    return at_end(reader) || is_blank(*reader->at) || is_comma(*reader->at) || *reader->at == reader->closing;
}

static uint64_t unit_bytes(const number_t *number)
{
    return number->unit > 0 ? 1ull << (10 * number->unit) : 1;
}

/* The number times `whole`, to the nearest; 0 when it is above MOST_BYTES. *exact_p: there was nothing to round. */
static int scale_number(const number_t *number, uint64_t whole, uint64_t *value_p, int *exact_p)
{
    mpath_u128_t value = number->digits, rest = 0;
    int exponent = number->exponent;

    for (; whole >> 40 != 0 && value > UINT64_MAX; exponent++) { /* digits that a share does not need */
        value /= 10;
    }
    value *= whole;
    *exact_p = 1;
    for (; exponent < 0 && (value > 0 || rest > 0); exponent++) {
        *exact_p &= rest == 0;
        rest = value % 10;
        value /= 10;
    }
    *exact_p &= rest == 0;
    value += rest >= 5;
    for (; exponent > 0 && value > 0 && value <= MOST_BYTES; exponent--) {
        value *= 10;
    }
    *value_p = (uint64_t)value;
    return value <= MOST_BYTES;
}

/* Nonzero: the number is 0 to 1. */
static int is_share(const number_t *number)
{
    mpath_u128_t one = 1;
    int exponent;

    for (exponent = number->exponent; exponent < 0 && one <= number->digits; exponent++) {
        one *= 10;
    }
    return number->unit < 0 && (number->digits == 0 || (exponent <= 0 && number->digits <= one));
}

/* --- cells ------------------------------------------------------------------------------------------------------- */

/* A number as the matrix's format has it: scaled, of a share, or of bytes. 0 when it is too large. */
static int cell_value(reader_t *reader, number_t number, place_t place, uint64_t *value_p)
{
    uint64_t whole = reader->share_bytes > 0 ? reader->share_bytes : unit_bytes(&number);
    int exact;

    if (reader->is_scaled) {
        if (__builtin_mul_overflow(whole, (uint64_t)reader->scale.digits, &whole)) {
            return 0;
        }
        number.exponent += reader->scale.exponent;
        return scale_number(&number, whole, value_p, &exact);
    }
    if (!scale_number(&number, whole, value_p, &exact)) {
        return 0;
    }
    if (!exact && number.unit <= 0 && reader->fraction.line == 0) {
        reader->fraction = place;
    }
    if (!is_share(&number) && reader->not_share.line == 0) {
        reader->not_share = place;
    }
    return 1;
}

static mpath_status_t read_cell(reader_t *reader)
{
    place_t start = here(reader);
    char why[sizeof(CELL_HELP) + 64], c;
    number_t number;
    uint64_t value;

    if (!read_number(reader, &number)) {
        c = peek(reader);
        snprintf(why, sizeof(why), "'%c' is not part of a number: %s", c >= ' ' && c < 127 ? c : '?', reader->help);
        return refuse(reader, here(reader), why);
    }
    if (!cell_value(reader, number, start, &value)) {
        return refuse(reader, start, "the number is larger than 2^62");
    }
    return push(reader, value);
}

static mpath_status_t refuse_empty(const reader_t *reader)
{
    return refuse(reader, here(reader), "the cell is empty; write 0 where nothing is sent");
}

/* A row has ended, which began behind `before` values. */
static mpath_status_t end_row(reader_t *reader, size_t before)
{
    size_t columns = reader->count - before;
    char why[96];

    if (columns == 0) {
        return MPATH_OK;
    }
    reader->columns = reader->rows == 0 ? columns : reader->columns;
    reader->rows++;
    if (columns != reader->columns || columns > MAX_RANKS) {
        snprintf(why, sizeof(why), "the row has %zu entries where %zu are needed", columns,
                 columns > MAX_RANKS ? (size_t)MAX_RANKS : reader->columns);
        return refuse(reader, here(reader), why);
    }
    return MPATH_OK;
}

/* --- lines ------------------------------------------------------------------------------------------------------- */

/* A line of names over the columns, before any row. */
static int read_header(reader_t *reader)
{
    const char *at = reader->at;
    size_t names   = 0;
    int in_name = 0, quoted = 0;

    if (reader->rows > 0 || reader->header_line > 0) {
        return 0;
    }
    for (; at < reader->end && *at != '\n' && (quoted || *at != '#'); at++) {
        if (!quoted && (is_blank(*at) || is_comma(*at))) {
            in_name = 0;
            continue;
        }
        if (!in_name && !((*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') || *at == '_' || *at == '"')) {
            return 0;
        }
        names += !in_name;
        in_name = 1;
        quoted ^= *at == '"';
    }
    if (names == 0) {
        return 0;
    }
    reader->header_columns = names;
    reader->header_line    = reader->line;
    reader->at             = at;
    return 1;
}

/* Cells with blanks, commas or semicolons between them; a comma has one on each side. */
static mpath_status_t read_cells(reader_t *reader)
{
    mpath_status_t status = MPATH_OK;
    int is_open = 0, cells = 0; /* a comma waits for the cell behind it */

    while (status == MPATH_OK && !at_end(reader)) {
        if (is_blank(*reader->at)) {
            reader->at++;
        } else if (!is_comma(*reader->at)) {
            status  = read_cell(reader);
            is_open = 0;
            cells   = 1;
        } else if (is_open || !cells) {
            status = refuse_empty(reader);
        } else {
            is_open = 1;
            reader->at++;
        }
    }
    return status == MPATH_OK && is_open ? refuse_empty(reader) : status;
}

static void start_line(reader_t *reader)
{
    reader->line++;
    reader->line_start = reader->at;
}

/* To the begin of the next line. */
static void skip_line(reader_t *reader)
{
    while (reader->at < reader->end && *reader->at != '\n') {
        reader->at++;
    }
    reader->at += reader->at < reader->end;
}

static mpath_status_t read_lines(reader_t *reader)
{
    mpath_status_t status = MPATH_OK;
    size_t before;

    while (reader->at < reader->end && status == MPATH_OK) {
        before = reader->count;
        start_line(reader);
        status = read_header(reader) ? MPATH_OK : read_cells(reader);
        if (status == MPATH_OK) {
            status = end_row(reader, before);
        }
        if (status == MPATH_OK) {
            skip_line(reader);
        }
    }
    return status;
}

/* --- lists ------------------------------------------------------------------------------------------------------- */

/* Over blanks, comments and ends of lines, within a list or a pattern's counts. */
static void skip_blanks(reader_t *reader)
{
    while (reader->at < reader->end) {
        if (*reader->at == '#') {
            while (reader->at < reader->end && *reader->at != '\n') {
                reader->at++;
            }
        } else if (*reader->at == '\n') {
            reader->at++;
            start_line(reader);
        } else if (is_blank(*reader->at)) {
            reader->at++;
        } else {
            return;
        }
    }
}

/* [1, 2] behind its first bracket, with commas or blanks between the numbers. */
static mpath_status_t read_list(reader_t *reader)
{
    size_t before         = reader->count;
    mpath_status_t status = MPATH_OK;
    int is_open           = 0;

    for (skip_blanks(reader); status == MPATH_OK && peek(reader) != ']'; skip_blanks(reader)) {
        if (reader->at == reader->end) {
            return refuse(reader, here(reader), "the list has no end: ']' is missing");
        }
        if (*reader->at == '[') {
            return refuse(reader, here(reader), "a list in a list of numbers");
        }
        if (!is_comma(*reader->at)) {
            status  = read_cell(reader);
            is_open = 0;
        } else if (is_open || reader->count == before) {
            status = refuse_empty(reader);
        } else {
            is_open = 1;
            reader->at++;
        }
    }
    if (status == MPATH_OK && is_open) {
        status = refuse_empty(reader);
    }
    if (status == MPATH_OK) {
        status = end_row(reader, before);
        reader->at++;
    }
    return status;
}

/* Nonzero: behind this bracket and blanks there is another. */
static int has_inner_list(const reader_t *reader)
{
    reader_t ahead = *reader;

    ahead.at++;
    skip_blanks(&ahead);
    return peek(&ahead) == '[';
}

/* Lists of numbers, [1, 2] [3, 4], or one of such lists, with commas or blanks between them. */
static mpath_status_t read_lists(reader_t *reader)
{
    mpath_status_t status = MPATH_OK;
    int is_outer, is_open = 0;

    reader->closing = ']';
    start_line(reader);
    skip_blanks(reader);
    is_outer = has_inner_list(reader);
    reader->at += is_outer;
    for (skip_blanks(reader); status == MPATH_OK && reader->at < reader->end; skip_blanks(reader)) {
        if (*reader->at == '[') {
            reader->at++;
            status  = read_list(reader);
            is_open = 0;
        } else if (*reader->at == ']' && is_outer && !is_open) {
            reader->at++;
            skip_blanks(reader);
            return reader->at == reader->end ? MPATH_OK : refuse(reader, here(reader), "text behind the list's end");
        } else if (is_comma(*reader->at) && !is_open && reader->rows > 0) {
            is_open = 1;
            reader->at++;
        } else {
            status = refuse(reader, here(reader), "'[' and a row's numbers are needed here");
        }
    }
    if (status == MPATH_OK && (is_outer || is_open)) {
        status = refuse(reader, here(reader), "the list has no end: ']' is missing");
    }
    return status;
}

/* --- UCC's patterns ---------------------------------------------------------------------------------------------- */

/* Bytes of an element of UCC's datatypes. */
static const struct {
    const char *name;
    int bytes;
} datatypes[] = {{"INT8", 1},
                 {"UINT8", 1},
                 {"INT16", 2},
                 {"UINT16", 2},
                 {"FLOAT16", 2},
                 {"BFLOAT16", 2},
                 {"INT32", 4},
                 {"UINT32", 4},
                 {"FLOAT32", 4},
                 {"INT64", 8},
                 {"UINT64", 8},
                 {"FLOAT64", 8},
                 {"FLOAT32_COMPLEX", 8},
                 {"INT128", 16},
                 {"UINT128", 16},
                 {"FLOAT128", 16},
                 {"FLOAT64_COMPLEX", 16},
                 {"FLOAT128_COMPLEX", 32}};

#define DEFAULT_ELEMENT_BYTES 4 /* of float32, what ucc_perftest takes */

/* The collective under way, and which one is kept. */
typedef struct pattern {
    size_t wanted, found; /* of the collectives: the one to keep, and how many there have been */
    int in_collective;
    place_t section, counts; /* where they began; counts: line 0, none yet */
    uint64_t team_size;      /* 0: not said */
    int element_bytes;
    size_t first; /* its values in the reader's */
} pattern_t;

static int is_word(const reader_t *reader, const char *start, const char *word)
{
    size_t length = (size_t)(reader->at - start);

    return strlen(word) == length && strncasecmp(start, word, length) == 0;
}

/* Up to what ends a word in such a file. */
static const char *read_word(reader_t *reader)
{
    const char *start = reader->at;

    while (reader->at < reader->end && (isalnum((unsigned char)*reader->at) || *reader->at == '_')) {
        reader->at++;
    }
    return start;
}

static void skip_line_blanks(reader_t *reader)
{
    while (reader->at < reader->end && is_blank(*reader->at)) {
        reader->at++;
    }
}

/* The numbers between braces: as many as a square has. */
static mpath_status_t read_counts(reader_t *reader, pattern_t *pattern)
{
    mpath_status_t status = MPATH_OK;

    pattern->counts = here(reader);
    if (peek(reader) != '{') {
        return refuse(reader, here(reader), "'{' is needed before the counts");
    }
    reader->at++;
    reader->closing = '}';
    for (skip_blanks(reader); status == MPATH_OK && peek(reader) != '}'; skip_blanks(reader)) {
        if (reader->at == reader->end) {
            return refuse(reader, here(reader), "the counts have no end: '}' is missing");
        }
        status = read_cell(reader);
        skip_blanks(reader);
        reader->at += status == MPATH_OK && peek(reader) == ',';
    }
    if (status == MPATH_OK && !reader->is_scaled && reader->fraction.line > 0) {
        status = refuse(reader, reader->fraction, "a count is a whole number");
    }
    reader->at += status == MPATH_OK;
    reader->closing = ' ';
    return status;
}

static mpath_status_t read_datatype(reader_t *reader, pattern_t *pattern, place_t place)
{
    const char *start = read_word(reader);

    for (size_t i = 0; i < sizeof(datatypes) / sizeof(datatypes[0]); i++) {
        if (is_word(reader, start, datatypes[i].name)) {
            pattern->element_bytes = datatypes[i].bytes;
            return MPATH_OK;
        }
    }
    return refuse(reader, place, "no datatype of UCC has this name (INT32, FLOAT16, BFLOAT16, ...)");
}

static mpath_status_t read_team_size(reader_t *reader, pattern_t *pattern, place_t place)
{
    number_t number;
    int exact;

    if (!read_number(reader, &number) || !scale_number(&number, 1, &pattern->team_size, &exact) || !exact ||
        pattern->team_size < 1 || pattern->team_size > MAX_RANKS) {
        return refuse(reader, place, "a number of ranks is needed");
    }
    return MPATH_OK;
}

/* "name = value"; what does not concern the matrix is skipped, as UCC does. */
static mpath_status_t read_setting(reader_t *reader, pattern_t *pattern)
{
    enum { TYPE, TEAM_SIZE, DATATYPE, COUNTS, OTHER };
    static const char *const names[] = {"type", "team_size", "datatype", "counts"};
    const char *start                = read_word(reader);
    int which                        = 0;
    place_t place;

    while (which < OTHER && !is_word(reader, start, names[which])) {
        which++;
    }
    skip_line_blanks(reader);
    if (reader->at == start || peek(reader) != '=') {
        return refuse(reader, here(reader), "'[section]' or 'name = value' is needed here");
    }
    reader->at++;
    skip_line_blanks(reader);
    place = here(reader);
    if (!pattern->in_collective || which == OTHER) {
        return MPATH_OK;
    }
    if (which == TYPE) {
        return is_word(reader, read_word(reader), "ALLTOALLV")
                   ? MPATH_OK
                   : refuse(reader, place, "this collective has no matrix; ALLTOALLV has");
    }
    if (which == TEAM_SIZE) {
        return read_team_size(reader, pattern, place);
    }
    if (which == DATATYPE) {
        return read_datatype(reader, pattern, place);
    }
    return pattern->counts.line == 0 ? read_counts(reader, pattern)
                                     : refuse(reader, place, "the collective has counts already");
}

/* The collective is complete: its counts as bytes, or forgotten if it is not the one to keep. */
static mpath_status_t end_collective(reader_t *reader, pattern_t *pattern)
{
    size_t count = reader->count - pattern->first, ranks = 0;
    char why[128];

    if (!pattern->in_collective) {
        return MPATH_OK;
    }
    if (pattern->counts.line == 0) {
        return refuse(reader, pattern->section, "the collective has no counts");
    }
    while (ranks * ranks < count) {
        ranks++;
    }
    if (ranks * ranks != count || count == 0 || ranks > MAX_RANKS ||
        (pattern->team_size > 0 && pattern->team_size != ranks)) {
        snprintf(why, sizeof(why), "%zu counts are not those of %s%llu ranks", count,
                 pattern->team_size > 0 ? "" : "any number of ranks, nor of ", (unsigned long long)pattern->team_size);
        return refuse(reader, pattern->counts, why);
    }
    for (size_t i = pattern->first; i < reader->count; i++) {
        if (reader->values[i] > MOST_BYTES / (uint64_t)pattern->element_bytes) {
            return refuse(reader, pattern->counts, "a count is larger than 2^62 bytes");
        }
        reader->values[i] *= (uint64_t)pattern->element_bytes;
    }
    if (pattern->found == pattern->wanted) {
        reader->rows = reader->columns = ranks;
    } else {
        reader->count = pattern->first;
    }
    pattern->found++;
    return MPATH_OK;
}

/* "[collective]" begins one. */
static mpath_status_t read_section(reader_t *reader, pattern_t *pattern)
{
    place_t place         = here(reader);
    mpath_status_t status = end_collective(reader, pattern);
    const char *start;

    if (status != MPATH_OK) {
        return status;
    }
    reader->at++;
    skip_line_blanks(reader);
    start    = read_word(reader);
    *pattern = (pattern_t){.wanted        = pattern->wanted,
                           .found         = pattern->found,
                           .in_collective = is_word(reader, start, "collective"),
                           .section       = place,
                           .element_bytes = DEFAULT_ELEMENT_BYTES,
                           .first         = reader->count};
    skip_line_blanks(reader);
    return peek(reader) == ']' ? MPATH_OK : refuse(reader, here(reader), "']' is needed behind the section's name");
}

/* Keeps the collective of this number; *found_p: how many there are. */
static mpath_status_t read_patterns(reader_t *reader, size_t wanted, size_t *found_p)
{
    pattern_t pattern     = {.wanted = wanted};
    mpath_status_t status = MPATH_OK;
    place_t begin         = {.line = 1, .column = 1};

    while (reader->at < reader->end && status == MPATH_OK) {
        start_line(reader);
        skip_line_blanks(reader);
        if (peek(reader) == '[') {
            status = read_section(reader, &pattern);
        } else if (!at_end(reader) && *reader->at != ';') {
            status = read_setting(reader, &pattern);
        }
        if (status == MPATH_OK) {
            skip_line(reader);
        }
    }
    if (status == MPATH_OK) {
        status = end_collective(reader, &pattern);
    }
    if (status == MPATH_OK && pattern.found == 0) {
        status = refuse(reader, begin, "no [collective] in it");
    }
    *found_p = pattern.found;
    return status;
}

/* --- whole texts ------------------------------------------------------------------------------------------------- */

typedef enum form { FORM_LINES, FORM_LISTS, FORM_PATTERNS } form_t;

/* By the first character that is no blank and in no comment: a bracket begins a list, or the name of a section. */
static form_t find_form(const reader_t *reader)
{
    reader_t ahead = *reader;

    while (ahead.at < ahead.end && (is_blank(*ahead.at) || strchr("\n#;", *ahead.at) != NULL)) {
        if (*ahead.at == '#' || *ahead.at == ';') {
            skip_line(&ahead);
        } else {
            ahead.at++;
        }
    }
    if (peek(&ahead) != '[') {
        return FORM_LINES;
    }
    ahead.at++;
    skip_line_blanks(&ahead);
    return isalpha((unsigned char)peek(&ahead)) ? FORM_PATTERNS : FORM_LISTS;
}

/* Reads the text from its begin, in the form that it has. */
static mpath_status_t read_text(reader_t *reader, const char *text, size_t length, uint64_t step)
{
    place_t begin = {.line = 1, .column = 1};
    mpath_status_t status;
    size_t found;
    reader_t first;

    reader->at      = text;
    reader->end     = text + length;
    reader->closing = ' ';
    if (length >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) { /* a byte order mark */
        reader->at += 3;
    } else if (length >= 2 && (memcmp(text, "\xff\xfe", 2) == 0 || memcmp(text, "\xfe\xff", 2) == 0)) {
        return refuse(reader, begin, "the text is UTF-16; UTF-8 is right");
    }
    switch (find_form(reader)) {
    case FORM_LINES:
        return read_lines(reader);
    case FORM_LISTS:
        return read_lists(reader);
    default:
        first  = *reader;
        status = read_patterns(reader, SIZE_MAX, &found);
        if (status != MPATH_OK) {
            return status;
        }
        first.values   = reader->values;
        first.capacity = reader->capacity;
        *reader        = first;
        return read_patterns(reader, (size_t)(step % found), &found);
    }
}

static mpath_status_t check_shape(const reader_t *reader)
{
    place_t place = {.line = reader->line, .column = 1};
    char why[96];

    if (reader->rows == 0 || reader->rows != reader->columns) {
        snprintf(why, sizeof(why), "%zu rows of %zu entries are not a square matrix", reader->rows, reader->columns);
        return refuse(reader, place, why);
    }
    if (reader->header_line > 0 && reader->header_columns != reader->columns) {
        place.line = reader->header_line;
        snprintf(why, sizeof(why), "%zu names over %zu columns", reader->header_columns, reader->columns);
        return refuse(reader, place, why);
    }
    return MPATH_OK;
}

/* Of a matrix with fractions of bytes: may it be one of shares? */
static mpath_status_t check_shares(const reader_t *reader, uint64_t share_bytes)
{
    char why[sizeof(CELL_HELP) + 160];

    if (reader->not_share.line > 0) {
        snprintf(
            why, sizeof(why),
            "this is no whole number of bytes, and the matrix is none of shares, as the cell at %d:%d is above 1: %s",
            reader->not_share.line, reader->not_share.column, CELL_HELP);
        return refuse(reader, reader->fraction, why);
    }
    if (share_bytes == 0) {
        return refuse(reader, reader->fraction, "this is a share of what a rank sends; bytes are right here");
    }
    return MPATH_OK;
}

/* Nonzero: `text` is a scale, which is left in the reader. */
static int read_scale(reader_t *reader, const char *text)
{
    reader_t all = {.at = text, .end = text + strlen(text), .closing = ' '};

    if (!read_number(&all, &reader->scale) || all.at != all.end || reader->scale.digits == 0 ||
        reader->scale.digits > MOST_SCALE / unit_bytes(&reader->scale)) {
        return 0;
    }
    reader->scale.digits *= unit_bytes(&reader->scale);
    reader->is_scaled = 1;
    return 1;
}

int mpath_matrix_is_scale(const char *text)
{
    reader_t reader = {0};

    return read_scale(&reader, text);
}

mpath_status_t mpath_matrix_parse(const char *name, const char *text, size_t length,
                                  const mpath_matrix_format_t *format, int *num_ranks_p, int *has_shares_p,
                                  uint64_t **demand_p)
{
    static const mpath_matrix_format_t plain = {0};
    reader_t empty                           = {.what = "matrix", .help = CELL_HELP, .name = name}, reader;
    mpath_status_t status;
    int has_shares = 0;

    format = format == NULL ? &plain : format;
    if (format->scale != NULL && !read_scale(&empty, format->scale)) {
        mpath_error("matrix %s: scale '%s' is no positive number up to 2^40; the matrix is not used", name,
                    format->scale);
        return MPATH_ERR_PARAM;
    }
    reader = empty;
    status = read_text(&reader, text, length, format->step);
    if (status == MPATH_OK) {
        status = check_shape(&reader);
    }
    if (status == MPATH_OK && reader.fraction.line > 0) {
        has_shares = 1;
        status     = check_shares(&reader, format->share_bytes);
        if (status == MPATH_OK) {
            free(reader.values);
            reader             = empty;
            reader.share_bytes = format->share_bytes;
            status             = read_text(&reader, text, length, format->step);
        }
    }
    if (status != MPATH_OK) {
        free(reader.values);
        return status;
    }
    *num_ranks_p  = (int)reader.rows;
    *has_shares_p = has_shares;
    *demand_p     = reader.values;
    return MPATH_OK;
}

/* Values of a row below 2^TABLE_BITS, none of them 0 that was not. */
static mpath_status_t fit_row(const reader_t *reader, size_t row)
{
    uint64_t *values = reader->values + row * reader->columns, most = 0;
    int shift = 0;
    char why[64];

    for (size_t i = 0; i < reader->columns; i++) {
        most = values[i] > most ? values[i] : most;
    }
    if (most == 0) {
        snprintf(why, sizeof(why), "all loads of row %zu are 0", row);
        return refuse(reader, (place_t){.line = reader->line, .column = 1}, why);
    }
    while (most >> shift >> TABLE_BITS != 0) {
        shift++;
    }
    for (size_t i = 0; i < reader->columns; i++) {
        values[i] = values[i] > 0 && values[i] >> shift == 0 ? 1 : values[i] >> shift;
    }
    return MPATH_OK;
}

mpath_status_t mpath_table_parse(const char *name, const char *text, size_t length, mpath_table_t *table)
{
    reader_t reader       = {.what = "table", .help = LOAD_HELP, .name = name};
    mpath_status_t status = read_scale(&reader, TABLE_SCALE) ? MPATH_OK : MPATH_ERR_INTERNAL;

    if (status == MPATH_OK) {
        status = read_text(&reader, text, length, 0);
    }
    if (status == MPATH_OK && reader.rows == 0) {
        status = refuse(&reader, (place_t){.line = 1, .column = 1}, "no loads in it");
    }
    for (size_t row = 0; status == MPATH_OK && row < reader.rows; row++) {
        status = fit_row(&reader, row);
    }
    if (status != MPATH_OK) {
        free(reader.values);
        return status;
    }
    *table = (mpath_table_t){.rows = reader.rows, .columns = reader.columns, .values = reader.values};
    return MPATH_OK;
}

void mpath_table_release(mpath_table_t *table)
{
    free(table->values);
    *table = (mpath_table_t){0};
}

/* --- files ------------------------------------------------------------------------------------------------------- */

/* The whole file in memory, malloc'ed. `what`: "matrix". */
static mpath_status_t read_file(FILE *file, const char *what, const char *path, char **text_p, size_t *length_p)
{
    size_t capacity = 1 << 16, length = 0, got;
    char *text = malloc(capacity), *larger;

    while (text != NULL && (got = fread(text + length, 1, capacity - length, file)) > 0) {
        length += got;
        if (length > MAX_FILE_BYTES) {
            mpath_error("%s %s: larger than 1 GiB; the %s is not used", what, path, what);
            free(text);
            return MPATH_ERR_PARAM;
        }
        if (length == capacity) {
            capacity *= 2;
            larger = realloc(text, capacity);
            if (larger == NULL) {
                free(text);
            }
            text = larger;
        }
    }
    if (text == NULL) {
        mpath_error("%s %s: no memory for it; the %s is not used", what, path, what);
        return MPATH_ERR_NO_MEMORY;
    }
    if (ferror(file)) {
        mpath_error("%s %s: read failed: %s; the %s is not used", what, path, strerror(errno), what);
        free(text);
        return MPATH_ERR_IO;
    }
    *text_p   = text;
    *length_p = length;
    return MPATH_OK;
}

static mpath_status_t load_file(const char *what, const char *path, char **text_p, size_t *length_p)
{
    FILE *file = fopen(path, "r");
    mpath_status_t status;

    if (file == NULL) {
        mpath_error("%s %s: cannot be opened: %s; the %s is not used", what, path, strerror(errno), what);
        return MPATH_ERR_IO;
    }
    status = read_file(file, what, path, text_p, length_p);
    fclose(file);
    return status;
}

mpath_status_t mpath_matrix_load(const char *path, const mpath_matrix_format_t *format, int *num_ranks_p,
                                 int *has_shares_p, uint64_t **demand_p)
{
    mpath_status_t status;
    size_t length;
    char *text;

    status = load_file("matrix", path, &text, &length);
    if (status == MPATH_OK) {
        status = mpath_matrix_parse(path, text, length, format, num_ranks_p, has_shares_p, demand_p);
        free(text);
    }
    return status;
}

mpath_status_t mpath_table_load(const char *path, mpath_table_t *table)
{
    mpath_status_t status;
    size_t length;
    char *text;

    status = load_file("table", path, &text, &length);
    if (status == MPATH_OK) {
        status = mpath_table_parse(path, text, length, table);
        free(text);
    }
    return status;
}
