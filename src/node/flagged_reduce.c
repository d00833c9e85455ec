/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Allreduces of short vectors (device/kernels/reduce.h). A rank starts its kernel before the agreement (node/flagged.h),
 * which passes while the GPU gets to work; each kernel sends its vector to all and waits for theirs. Of longer ones it
 * sends each rank's part, combines its own and sends that to all. Unless all have started theirs, nothing is complete
 * anywhere and no kernel has written a result. Each form has memory and numbers of its own.
 */
#include "node/reduce_private.h"
#include "node/flagged.h"

#include "device/usage.h"
#include "util/log.h"

#include <stdlib.h>
#include <string.h>

/* Of each GPU, for parts: room for MPATH_REDUCE_PARTS_MAX_BYTES, nearly. */
#define PARTS_MEMORY_MAX (UINT64_C(16) << 20)

/* What one form of the kernels needs. */
typedef struct eager_form {
    gpu_lent_t *lent;                 /* NULL until there was a call for it */
    uint64_t number;                  /* of calls that could have gone this way, the same on all ranks */
    uint64_t counted;                 /* the number that the kernels' counters have */
    mpath_device_function_t function; /* of the last operation and type; NULL: not looked for */
    gpu_eager_kernel_t kernel;
    uint64_t longest_bytes; /* vector that goes this way */
    int longest_known;      /* 1: with rates of the H200, 2: of this machine */
} eager_form_t;

struct gpu_eager {
    eager_form_t forms[MPATH_EAGER_FORMS];
    /* the call under way */
    mpath_reduce_how_t how;
    int known, fits;         /* of `how` */
    mpath_eager_form_t form; /* MPATH_EAGER_FORMS: none */
    uint64_t bytes;
    mpath_kernel_eager_t arguments;
    int wanted; /* there is memory for its vector, or may be */
    int started;
};

gpu_eager_t *mpath_gpu_eager_create(void)
{
    return calloc(1, sizeof(gpu_eager_t));
}

void mpath_gpu_eager_destroy(gpu_eager_t *eager)
{
    for (int form = 0; (eager != NULL) && (form < MPATH_EAGER_FORMS); form++) {
        mpath_gpu_lent_destroy(eager->forms[form].lent);
        mpath_pinned_release(&eager->forms[form].kernel.words);
    }
    free(eager);
}

/* -- which form -- */

/* For vectors of so many bytes; MPATH_EAGER_FORMS: the way that has been chosen for after the agreement is faster. */
static mpath_eager_form_t form_of(const mpath_symmetric_gpu_t *gpu, uint64_t bytes)
{
    mpath_gpu_reduce_t way = (mpath_gpu_reduce_t)gpu->reduce->settings->gpu_reduce;
    unsigned ways          = MPATH_REDUCE_WAY(gpu->way) | MPATH_REDUCE_WAY(MPATH_GPU_REDUCE_PARTS) |
                    MPATH_REDUCE_WAY(MPATH_GPU_REDUCE_WHOLE);

    if (gpu->in_ring) {
        return MPATH_EAGER_FORMS; /* they combine in the order of the ranks */
    }
    if (way == MPATH_GPU_REDUCE_AUTO) {
        way = mpath_reduce_fastest(&gpu->reduce->rates, ways, (unsigned)gpu->size, bytes);
    }
    if (way == MPATH_GPU_REDUCE_WHOLE) {
        return (bytes <= MPATH_REDUCE_WHOLE_MAX_BYTES) ? MPATH_EAGER_WHOLE : MPATH_EAGER_FORMS;
    }
    return ((way == MPATH_GPU_REDUCE_PARTS) && (bytes <= MPATH_REDUCE_PARTS_MAX_BYTES)) ? MPATH_EAGER_PARTS
                                                                                        : MPATH_EAGER_FORMS;
}

/* The longest vector that goes in a form: for which it may be predicted to be the fastest, or is forced. */
static uint64_t longest(const mpath_symmetric_gpu_t *gpu, mpath_eager_form_t what)
{
    mpath_gpu_reduce_t way   = (what == MPATH_EAGER_WHOLE) ? MPATH_GPU_REDUCE_WHOLE : MPATH_GPU_REDUCE_PARTS;
    mpath_gpu_reduce_t other = (what == MPATH_EAGER_WHOLE) ? MPATH_GPU_REDUCE_PARTS : MPATH_GPU_REDUCE_DIRECT;
    uint64_t limit     = (what == MPATH_EAGER_WHOLE) ? MPATH_REDUCE_WHOLE_MAX_BYTES : MPATH_REDUCE_PARTS_MAX_BYTES;
    eager_form_t *form = &gpu->eager->forms[what];
    int known          = gpu->reduce->rated ? 2 : 1;

    if (gpu->reduce->settings->gpu_reduce == (int)way) {
        return limit;
    }
    if (form->longest_known != known) {
        form->longest_known = known;
        form->longest_bytes = mpath_reduce_most_bytes(&gpu->reduce->rates, way, other, (unsigned)gpu->size, limit);
    }
    return form->longest_bytes;
}

/* The longest vector for a form, as far as this rank has memory; 0: it has none. */
static uint64_t max_bytes(const mpath_symmetric_gpu_t *gpu, mpath_eager_form_t form)
{
    uint64_t size = (uint64_t)gpu->size, memory = gpu->reduce->settings->gpu_memory_bytes, room;
    uint64_t most   = longest(gpu, form);
    uint64_t wanted = mpath_eager_memory_bytes(form, (unsigned)size,
                                               mpath_eager_slot_bytes(form, (unsigned)size, most));

    if (form != MPATH_EAGER_WHOLE) {
        memory = (memory / 2 < PARTS_MEMORY_MAX) ? memory / 2 : PARTS_MEMORY_MAX;
    }
    memory = (wanted < memory) ? wanted : memory;
    memory = mpath_gpu_lent_most(gpu->eager->forms[form].lent, gpu->reduce, memory);
    if (memory <= MPATH_EAGER_COUNTERS_BYTES) {
        return 0;
    }
    room = (memory - MPATH_EAGER_COUNTERS_BYTES) / (4 * size);
    room = (form == MPATH_EAGER_WHOLE) ? room : room / MPATH_EAGER_GROUP_SLOT_BYTES * size * MPATH_EAGER_GROUP_BYTES;
    return ((most < room) ? most : room) & ~UINT64_C(15);
}

/* Whether its memory is there, with numbers left. The same on all ranks. */
static int is_usable(const eager_form_t *form)
{
    return (form->lent != NULL) && form->lent->usable && (form->number < MPATH_EAGER_PARTS_CALLS);
}

static int has_room(const mpath_symmetric_gpu_t *gpu, mpath_eager_form_t form, uint64_t bytes)
{
    const eager_form_t *of = &gpu->eager->forms[form];

    return is_usable(of) ? (mpath_eager_slot_bytes(form, (unsigned)gpu->size, bytes) <= of->lent->unit_bytes)
                         : (bytes <= max_bytes(gpu, form));
}

static void look_at_how(gpu_eager_t *eager, const mpath_reduce_how_t *how)
{
    if (!eager->known || (eager->how.op != how->op) || (eager->how.type != how->type)) {
        eager->known = 1;
        eager->how   = *how;
        eager->fits  = mpath_eager_fits(how);
        for (int form = 0; form < MPATH_EAGER_FORMS; form++) {
            eager->forms[form].function = NULL;
        }
    }
}

/* -- one kernel -- */

static mpath_status_t launch(mpath_symmetric_gpu_t *gpu)
{
    gpu_eager_t *eager        = gpu->eager;
    eager_form_t *form        = &eager->forms[eager->form];
    gpu_eager_launch_t launch = {.function  = form->function,
                                 .arguments = &eager->arguments,
                                 .bytes     = sizeof(eager->arguments),
                                 .ctas      = form->kernel.ctas,
                                 .number    = form->number,
                                 .follows   = form->counted + 1 == form->number,
                                 .once      = (int)eager->arguments.again};
    mpath_status_t status;

    mpath_gpu_coll_lock();
    status = mpath_gpu_launches_start_eager(gpu->launches, form->kernel.stream, &launch);
    mpath_gpu_coll_unlock();
    form->counted = form->number;
    return status;
}

static mpath_status_t launch_again(void *of)
{
    mpath_symmetric_gpu_t *gpu = of;

    gpu->eager->arguments.again = 1;
    return launch(gpu);
}

static mpath_status_t find(mpath_symmetric_gpu_t *gpu, eager_form_t *form)
{
    gpu_eager_t *eager    = gpu->eager;
    mpath_status_t status = MPATH_OK;

    if (form->function == NULL) {
        status = mpath_eager_find(form->lent->device, &eager->how, eager->form, &form->function);
    }
    if (status == MPATH_OK) {
        status = mpath_stream_get(form->lent->device, gpu->reduce->first_stream + 1, &form->kernel.stream);
    }
    return status;
}

/* This rank's kernel, on the GPU of the memory that it lends. */
static mpath_status_t start(mpath_symmetric_gpu_t *gpu, const mpath_symmetric_buffers_t *buffers, uint64_t elements)
{
    gpu_eager_t *eager              = gpu->eager;
    eager_form_t *form              = &eager->forms[eager->form];
    mpath_kernel_eager_t *arguments = &eager->arguments;

    memset(arguments, 0, sizeof(*arguments)); /* they are compared as bytes */
    arguments->elements    = elements;
    arguments->send        = (mpath_device_ptr_t)(uintptr_t)buffers->send;
    arguments->recv        = (mpath_device_ptr_t)(uintptr_t)buffers->recv;
    arguments->words       = mpath_pinned_device(&form->kernel.words, form->kernel.words.base);
    arguments->patience_ns = GPU_EAGER_PATIENCE_NS;
    arguments->slot_bytes  = form->lent->unit_bytes;
    arguments->ranks       = (uint32_t)gpu->size;
    arguments->me          = (uint32_t)gpu->me;
    for (int rank = 0; rank < gpu->size; rank++) {
        arguments->memory[rank] = mpath_gpu_lent_address(form->lent, rank);
    }
    form->kernel.number       = form->number;
    form->kernel.ctas         = mpath_eager_ctas(eager->form, (unsigned)gpu->size, eager->bytes);
    form->kernel.what         = "vector";
    form->kernel.launch_again = launch_again;
    form->kernel.of           = gpu;
    eager->started            = 1;
    return launch(gpu);
}

/* Whether this rank could do it: its form is there, or may be once it is. */
static int is_wanted(mpath_symmetric_gpu_t *gpu, const mpath_reduce_how_t *how)
{
    gpu_eager_t *eager = gpu->eager;

    look_at_how(eager, how);
    if (!gpu->choice.form_known) {
        gpu->choice.form_known = 1;
        gpu->choice.form       = eager->fits ? form_of(gpu, eager->bytes) : MPATH_EAGER_FORMS;
    }
    eager->form = gpu->choice.form;
    return (eager->form != MPATH_EAGER_FORMS) && has_room(gpu, eager->form, eager->bytes);
}

mpath_status_t mpath_gpu_eager_start(mpath_symmetric_gpu_t *gpu, const mpath_symmetric_buffers_t *buffers,
                                     uint64_t elements, const mpath_reduce_how_t *how, const mpath_gpu_t *device)
{
    gpu_eager_t *eager    = gpu->eager;
    mpath_status_t status = MPATH_OK;
    eager_form_t *form;
    uint64_t start_ns;

    eager->bytes       = elements * mpath_reduce_bytes(how->type);
    eager->started     = 0;
    eager->wanted      = is_wanted(gpu, how);
    gpu->reduce->eager = GPU_EAGER_NOT;
    if (!eager->wanted) {
        return MPATH_OK;
    }
    form = &eager->forms[eager->form];
    if (device != NULL) {
        gpu->reduce->eager = GPU_EAGER_WANTED;
    }
    if (is_usable(form)) {
        form->number++;
        if (gpu->reduce->eager && (device == form->lent->device) && (find(gpu, form) == MPATH_OK)) {
            gpu->reduce->eager    = GPU_EAGER_STARTED;
            start_ns              = mpath_time_ns();
            form->kernel.began_ns = start_ns;
            form->kernel.bytes    = eager->bytes;
            status                = start(gpu, buffers, elements);
            gpu->counters.move_ns += mpath_time_ns() - start_ns;
        }
    }
    if (status != MPATH_OK) {
        mpath_team_break(gpu->team, status);
    }
    return status;
}

mpath_status_t mpath_gpu_eager_finish(mpath_symmetric_gpu_t *gpu, mpath_status_t agreed, int *done_p)
{
    mpath_gpu_coll_t *coll = gpu->reduce;
    gpu_eager_t *eager     = gpu->eager;
    uint64_t start_ns      = mpath_time_ns();
    mpath_status_t status  = agreed;
    gpu_eager_kernel_t *kernel;

    *done_p = (agreed == MPATH_OK) && eager->started && mpath_gpu_eager_all(coll);
    if (!eager->started) {
        return agreed;
    }
    kernel = &eager->forms[eager->form].kernel;
    if (!mpath_status_is_error(agreed)) {
        status = mpath_gpu_eager_await(coll, kernel, *done_p);
    }
    if (mpath_status_is_error(status)) {
        mpath_team_break(gpu->team, status);
        mpath_gpu_eager_abandon(kernel);
        return status;
    }
    if (*done_p) {
        atomic_store_explicit(&coll->room.words[gpu->me].kernel_done, coll->number, memory_order_release);
        coll->counters.calls++;
        coll->counters.eager++;
        coll->counters.kernel_bytes += eager->bytes;
        gpu->counters.calls++;
        gpu->counters.move_ns += mpath_time_ns() - start_ns;
    }
    return agreed;
}

/* -- what it needs -- */

/*
 * Whether a rank could have started its kernel and has not: the driver has refused it. In all calls to come the others
 * would start theirs in vain. The same on all ranks.
 */
static int is_refused(const mpath_gpu_coll_t *coll, const eager_form_t *form)
{
    int refused = 0;

    for (int rank = 0; is_usable(form) && (rank < coll->size); rank++) {
        refused = refused || (gpu_cell(coll, rank)->eager != GPU_EAGER_STARTED);
    }
    return refused;
}

/* Anew, since some rank's GPU has changed or had no memory, or there are no numbers left. */
static mpath_status_t share(const mpath_symmetric_gpu_t *gpu, mpath_eager_form_t what, eager_form_t *form)
{
    const mpath_gpu_coll_t *coll = gpu->reduce;
    unsigned size                = (unsigned)gpu->size;
    uint64_t most                = max_bytes(gpu, what), unit;
    mpath_status_t status;

    form->number = form->counted = 0;
    form->function               = NULL;
    unit                         = (most > 0) ? mpath_eager_slot_bytes(what, size, most) : 0;
    mpath_pinned_release_lost(&form->kernel.words);
    if (mpath_eager_find(coll->send.gpu, &gpu->eager->how, what, &form->function) != MPATH_OK) {
        unit = 0;
    }
    if ((form->kernel.words.base == NULL) &&
        (mpath_pinned_alloc(coll->send.gpu, MPATH_EAGER_CTAS * sizeof(uint64_t), &form->kernel.words) != MPATH_OK)) {
        unit = 0;
    }
    if (form->kernel.words.base != NULL) {
        memset(form->kernel.words.base, 0, MPATH_EAGER_CTAS * sizeof(uint64_t)); /* they may have the new numbers */
    }
    status = mpath_gpu_lent_share(form->lent, coll, unit, mpath_eager_memory_bytes(what, size, unit));
    if ((status == MPATH_OK) && form->lent->usable) {
        mpath_debug("device memory of %u ranks can be reduced eagerly, %s of up to %llu bytes", size,
                    (what == MPATH_EAGER_PARTS) ? "parts" : "vectors", (unsigned long long)most);
    }
    return status;
}

mpath_status_t mpath_gpu_eager_prepare(mpath_symmetric_gpu_t *gpu)
{
    const mpath_gpu_coll_t *coll = gpu->reduce;
    eager_form_t *form;

    for (int rank = 0; rank < gpu->size; rank++) {
        if (gpu_cell(coll, rank)->eager == GPU_EAGER_NOT) {
            return MPATH_OK;
        }
    }
    form = &gpu->eager->forms[gpu->eager->form];
    if (form->lent == NULL) {
        form->lent = mpath_gpu_lent_create(gpu->size, gpu->me);
        if (form->lent == NULL) {
            mpath_error("no memory for reductions of %d ranks on device memory; the call fails", gpu->size);
            return MPATH_ERR_NO_MEMORY; /* the others count on it */
        }
    }
    if (mpath_gpu_lent_is_current(form->lent, coll) && is_refused(coll, form)) {
        form->lent->usable = 0;
        mpath_pause_note(&form->lent->pause, 0);
        return MPATH_OK;
    }
    if (!mpath_gpu_lent_is_due(form->lent, coll) && (form->number < MPATH_EAGER_PARTS_CALLS)) {
        mpath_gpu_lent_pass(form->lent);
        return MPATH_OK;
    }
    return share(gpu, gpu->eager->form, form);
}
