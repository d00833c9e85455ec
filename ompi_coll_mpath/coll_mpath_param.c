/* SPDX-License-Identifier: BSD-3-Clause */
/* MCA variables coll_mpath_*: the rows of mpath_params[], and three that only the component has. */
#include "coll_mpath.h"
#include "coll_mpath_help.h"

#include "opal/mca/base/mca_base_var.h"
#include "opal/mca/base/mca_base_var_enum.h"

#include <stdlib.h>
#include <string.h>

#define PARAM_HELP_MAX 512
#define PARAM_TEXT_MAX 64
#define PARAM_ROWS_MAX 64
#define PARAM_VALUES_MAX 16

static const mpath_param_t enable_param = {
    .name  = "enable",
    .type  = MPATH_PARAM_INT,
    .min   = 0,
    .max   = 1,
    .level = 4,
    .help  = "0: communicators made from now on do without mpath. May be written through MPI_T while the program runs, "
             "by all processes of the communicator alike",
    .writable = 1};

static const mpath_param_t nonblocking_param = {
    .name  = "nonblocking",
    .type  = MPATH_PARAM_INT,
    .min   = 0,
    .max   = 1,
    .level = 5,
    .help  = "0: non-blocking and persistent collectives do without mpath. The same on all ranks"};

static const mpath_param_t fallback_param = {
    .name  = "fallback",
    .type  = MPATH_PARAM_STRING,
    .level = 6,
    .help =
        "Components added to a selection that names mpath but not both basic and libnbc; all: to one that is just mpath "
        "(\"--mca coll mpath\") every component that is installed, to another one basic,libnbc,inter,self,tuned"};

/* BYTES are text to MCA, so that suffixes and errors are the same everywhere; MCA owns what the pointers lead to. */
static char *param_texts[PARAM_ROWS_MAX];
static char param_defaults[PARAM_ROWS_MAX][PARAM_TEXT_MAX];

/* A value is the same for the processes of a node: the first of them speaks. Tools such as ompi_info have no number. */
#define param_warn(_name, _problem, _used)                                                                             \
    do {                                                                                                               \
        if (param_speaks()) {                                                                                          \
            COLL_MPATH_TELL("bad-value", "parameter coll_mpath_%s: %s; using %s", _name, _problem, _used);             \
        }                                                                                                              \
    } while (0)

static bool param_speaks(void)
{
    uint16_t local_rank = (uint16_t)ompi_process_info.my_local_rank;

    return (0 == local_rank) || (UINT16_MAX == local_rank);
}

static void *param_field(const mpath_param_t *param)
{
    return (char *)&mca_coll_mpath_component.settings + param->offset;
}

static void param_help(const mpath_param_t *param, char *text, size_t size)
{
    if ('\0' != param->unit[0]) {
        snprintf(text, size, "%s (%s)", param->help, param->unit);
    } else {
        snprintf(text, size, "%s", param->help);
    }
}

/* What is no parameter any more is taken, but not listed. */
static int param_register_one(const mpath_param_t *param, const char *help, mca_base_var_type_t type,
                              mca_base_var_enum_t *values, void *storage)
{
    int flags = param->writable ? MCA_BASE_VAR_FLAG_SETTABLE : 0;

    if (MPATH_PARAM_OWN != param->kind) {
        flags = MCA_BASE_VAR_FLAG_INTERNAL;
    }
    return mca_base_component_var_register(
        &mca_coll_mpath_component.super.collm_version, param->name, help, type, values, 0, (mca_base_var_flag_t)flags,
        (mca_base_var_info_lvl_t)(OPAL_INFO_LVL_1 + param->level - 1),
        param->writable ? MCA_BASE_VAR_SCOPE_LOCAL : MCA_BASE_VAR_SCOPE_READONLY, storage);
}

/*
 * Numbers are read here: Open MPI takes "ten" for 0, "10x" for 10 and "079" for 7, and fails at what no int holds. The
 * enumerator also keeps what is written through MPI_T in range, and tells ompi_info the range.
 */
typedef struct param_number_t {
    mca_base_var_enum_t super;
    const mpath_param_t *param;
    int initial;
    bool read; /* a text was given */
} param_number_t;

static param_number_t param_numbers[PARAM_ROWS_MAX];
static int param_numbers_count;

static int number_get_count(mca_base_var_enum_t *self, int *count)
{
    (void)self;
    *count = 0; /* no value has a name */
    return OPAL_SUCCESS;
}

static int number_get_value(mca_base_var_enum_t *self, int index, int *value, const char **string_value)
{
    (void)self;
    (void)index;
    (void)value;
    (void)string_value;
    return OPAL_ERR_VALUE_OUT_OF_BOUNDS;
}

/* A text that is no such number is told here, and is no error to Open MPI. */
static int number_from_string(mca_base_var_enum_t *self, const char *text, int *value)
{
    param_number_t *number = (param_number_t *)self;
    char problem[PARAM_HELP_MAX], used[PARAM_TEXT_MAX];
    mpath_param_t whole = *number->param;
    mpath_settings_t parsed;

    whole.offset = offsetof(mpath_settings_t, priority);
    number->read = true;
    if (MPATH_OK == mpath_settings_set(&parsed, &whole, text, problem, sizeof(problem))) {
        *value = parsed.priority;
        return OPAL_SUCCESS;
    }
    snprintf(used, sizeof(used), "%d", number->initial);
    param_warn(whole.name, problem, used);
    *value = number->initial;
    return OPAL_SUCCESS;
}

static int number_to_string(mca_base_var_enum_t *self, const int value, char **text)
{
    const mpath_param_t *param = ((param_number_t *)self)->param;

    if ((value < param->min) || (value > param->max)) {
        return OPAL_ERR_VALUE_OUT_OF_BOUNDS;
    }
    return ((NULL != text) && (0 > asprintf(text, "%d", value))) ? OPAL_ERR_OUT_OF_RESOURCE : OPAL_SUCCESS;
}

static int number_dump(mca_base_var_enum_t *self, char **text COLL_MPATH_DUMP_FORM)
{
    const mpath_param_t *param = ((param_number_t *)self)->param;

    return (0 > asprintf(text, "%lld to %lld", (long long)param->min, (long long)param->max)) ? OPAL_ERR_OUT_OF_RESOURCE
                                                                                              : OPAL_SUCCESS;
}

static param_number_t *param_number_new(const mpath_param_t *param, int initial)
{
    param_number_t *number = &param_numbers[param_numbers_count++];

    OBJ_CONSTRUCT(&number->super, mca_base_var_enum_t);
    number->super.enum_is_static    = true;
    number->super.enum_name         = (char *)param->name;
    number->super.get_count         = number_get_count;
    number->super.get_value         = number_get_value;
    number->super.value_from_string = number_from_string;
    number->super.string_from_value = number_to_string;
    number->super.dump              = number_dump;
    number->param                   = param;
    number->initial                 = initial;
    return number;
}

/* Open MPI takes an empty text for 0, and asks no enumerator about it. */
static bool param_is_empty(int index)
{
    mca_base_var_source_t source = MCA_BASE_VAR_SOURCE_DEFAULT;

    return (OPAL_SUCCESS == mca_base_var_get_value(index, NULL, &source, NULL)) &&
           (MCA_BASE_VAR_SOURCE_DEFAULT != source);
}

static int param_register_int(const mpath_param_t *param, const char *help, int *field)
{
    param_number_t *number = param_number_new(param, *field);
    int rc;

    rc = param_register_one(param, help, MCA_BASE_VAR_TYPE_INT, &number->super, field);
    if ((0 <= rc) && !number->read && param_is_empty(rc)) {
        (void)number_from_string(&number->super, "", field);
    }
    return rc;
}

/* What was given for the parameter that is being registered: Open MPI does not tell when it is none of the words. */
static char param_word[PARAM_TEXT_MAX];
static mca_base_var_enum_vfs_fn_t param_look_up;

static int param_look_up_kept(mca_base_var_enum_t *enumerator, const char *word, int *value)
{
    snprintf(param_word, sizeof(param_word), "%s", word);
    return param_look_up(enumerator, word, value);
}

static int param_register_enum(const mpath_param_t *param, const char *help)
{
    mca_base_var_enum_value_t values[PARAM_VALUES_MAX + 1];
    mca_base_var_enum_t *enumerator = NULL;
    char problem[PARAM_HELP_MAX];
    int *field  = param_field(param);
    int initial = *field;
    int i, rc;

    memset(values, 0, sizeof(values));
    for (i = 0; (i < PARAM_VALUES_MAX) && (NULL != param->values[i]); i++) {
        values[i].value  = i;
        values[i].string = param->values[i];
    }
    rc = mca_base_var_enum_create(param->name, values, &enumerator);
    if (OPAL_SUCCESS != rc) {
        return rc;
    }
    param_word[0]                 = '\0';
    param_look_up                 = enumerator->value_from_string;
    enumerator->value_from_string = param_look_up_kept;
    rc                            = param_register_one(param, help, MCA_BASE_VAR_TYPE_INT, enumerator, field);
    enumerator->value_from_string = param_look_up;
    OBJ_RELEASE(enumerator);
    if ((OPAL_ERR_VALUE_OUT_OF_BOUNDS != rc) && !((0 <= rc) && ('\0' == param_word[0]) && param_is_empty(rc))) {
        return rc;
    }
    *field = initial;
    if (MPATH_OK !=
        mpath_settings_set(&mca_coll_mpath_component.settings, param, param_word, problem, sizeof(problem))) {
        param_warn(param->name, problem, param->values[initial]);
    }
    return OPAL_SUCCESS;
}

static int param_register_bytes(const mpath_param_t *param, const char *help, int row, uint64_t *field)
{
    mpath_settings_t parsed;
    mpath_param_t whole = *param;
    char message[PARAM_HELP_MAX];
    char **text = &param_texts[row];
    int rc;

    whole.offset = offsetof(mpath_settings_t, memory_bytes);
    snprintf(param_defaults[row], sizeof(param_defaults[row]), "%s", param->initial);
    *text = param_defaults[row];
    rc    = param_register_one(param, help, MCA_BASE_VAR_TYPE_STRING, NULL, text);
    if (0 > rc) {
        return rc;
    }
    if (MPATH_OK == mpath_settings_set(&parsed, &whole, (NULL != *text) ? *text : "", message, sizeof(message))) {
        *field = parsed.memory_bytes;
        return rc;
    }
    param_warn(param->name, message, param->initial);
    if (MPATH_OK == mpath_settings_set(&parsed, &whole, param->initial, message, sizeof(message))) {
        *field = parsed.memory_bytes;
    }
    return rc;
}

static int param_register(const mpath_param_t *param, int row)
{
    char help[PARAM_HELP_MAX];

    param_help(param, help, sizeof(help));
    switch (param->type) {
    case MPATH_PARAM_INT:
        return param_register_int(param, help, param_field(param));
    case MPATH_PARAM_ENUM:
        return param_register_enum(param, help);
    case MPATH_PARAM_BYTES:
        return param_register_bytes(param, help, row, param_field(param));
    case MPATH_PARAM_STRING:
        return param_register_one(param, help, MCA_BASE_VAR_TYPE_STRING, NULL, param_field(param));
    }
    return OPAL_ERR_NOT_SUPPORTED;
}

static int param_register_own(void)
{
    mca_coll_mpath_component_t *component = &mca_coll_mpath_component;
    int rc;

    component->enable      = 1;
    component->nonblocking = 1;

    rc = param_register_int(&enable_param, enable_param.help, &component->enable);
    if (0 <= rc) {
        rc = param_register_int(&nonblocking_param, nonblocking_param.help, &component->nonblocking);
    }
    if (0 > rc) {
        return rc;
    }
    component->fallback = COLL_MPATH_FALLBACK_ALL;

    return param_register_one(&fallback_param, fallback_param.help, MCA_BASE_VAR_TYPE_STRING, NULL,
                              &component->fallback);
}

static void param_warn_item(const char *key, const char *problem, const char *used, void *arg)
{
    char name[PARAM_TEXT_MAX];

    (void)arg;
    snprintf(name, sizeof(name), "internals: %s", key);
    param_warn(name, problem, used);
}

int mca_coll_mpath_params_register(void)
{
    mpath_settings_t *settings = &mca_coll_mpath_component.settings;
    size_t i;
    int rc;

    mpath_settings_init(settings);
    param_numbers_count = 0;
    for (i = 0; (i < mpath_params_count) && (i < PARAM_ROWS_MAX - 1); i++) {
        rc = param_register(&mpath_params[i], (int)i);
        if (0 > rc) {
            mpath_error("Open MPI does not take parameter coll_mpath_%s (error %d); mpath is not used",
                        mpath_params[i].name, rc);
            return rc;
        }
        if (0 == strcmp(mpath_params[i].name, "verbose")) {
            mpath_log_set_level((mpath_log_level_t)settings->verbose);
        }
    }
    rc = param_register_own();
    mpath_settings_read_internals(settings, param_warn_item, NULL);
    return rc;
}
