/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tags of non-blocking collectives. All components take them from one counter of the communicator, in the order of the
 * calls. Who takes a tag without making a request keeps its place in that order, and the request can be made later,
 * with this tag, if it is wanted at all.
 *
 * It is made on a twin of the communicator: the same but for a counter of its own, from which the previous function takes
 * the tag that was kept. The communicator's own counter may be in use by other threads, and by collectives that mpath does
 * not see. Messages go by the context, so ranks that use the communicator itself meet those that use a twin.
 *
 * One tag is taken in each call, by whichever way, so that ranks need not do alike: libnbc takes none on a rank that has
 * nothing to send or receive in place, and then the next non-blocking collectives of the ranks would not find each other.
 */
#include "coll_mpath_request.h"

#include "ompi/mca/coll/base/coll_tags.h"

#include <string.h>

/* The message layer refers to a twin for as long as it has something under way there. */
typedef struct tag_twin_t {
    struct ompi_communicator_t comm; /* first; with the head of this class */
    struct ompi_communicator_t *original;
} tag_twin_t;
OBJ_CLASS_DECLARATION(tag_twin_t);

static void twin_destruct(tag_twin_t *twin)
{
    OBJ_RELEASE(twin->original);
}

/* Not of the communicator's class, whose destructor would take apart what belongs to the original. */
OBJ_CLASS_INSTANCE(tag_twin_t, opal_object_t, NULL, twin_destruct);

static int32_t *tag_counter(struct ompi_communicator_t *comm)
{
    return (int32_t *)(void *)&comm->c_nbc_tag;
}

/* As the components do, which begin anew at the end. */
int32_t mca_coll_mpath_tag_take(mca_coll_mpath_module_t *module)
{
    int32_t *counter = tag_counter(module->comm), before = __atomic_load_n(counter, __ATOMIC_RELAXED), tag;

    do {
        tag = (MCA_COLL_BASE_TAG_NONBLOCKING_END > before - 1) ? MCA_COLL_BASE_TAG_NONBLOCKING_BASE : before;
    } while (!__atomic_compare_exchange_n(counter, &before, tag - 1, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return tag;
}

int32_t mca_coll_mpath_tag_look(const mca_coll_mpath_module_t *module)
{
    return module->comm->c_nbc_tag;
}

void mca_coll_mpath_tag_level(mca_coll_mpath_module_t *module, int32_t before)
{
    if (module->comm->c_nbc_tag == before) {
        (void)mca_coll_mpath_tag_take(module);
    }
}

struct ompi_communicator_t *mca_coll_mpath_tag_twin(const mca_coll_mpath_module_t *module, int32_t tag)
{
    tag_twin_t *twin  = OBJ_NEW(tag_twin_t);
    const size_t head = sizeof(opal_object_t);

    if (NULL == twin) {
        return NULL;
    }
    memcpy((char *)twin + head, (const char *)module->comm + head, sizeof(twin->comm) - head);
    *tag_counter(&twin->comm) = tag;
    twin->original            = module->comm;
    OBJ_RETAIN(twin->original);
    return &twin->comm;
}

bool mca_coll_mpath_tag_fits(const struct ompi_communicator_t *twin, int32_t tag)
{
    return (twin->c_nbc_tag == tag) || (twin->c_nbc_tag == tag - 1);
}
