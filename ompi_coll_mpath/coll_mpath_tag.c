/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tags of non-blocking collectives. All components take them from one counter of the communicator, in the order of the
 * calls. Who takes a tag without making a request keeps its place in that order, and the request can be made later,
 * with this tag, if it is wanted at all.
 *
 * That works where the previous function takes exactly one tag, which its first call shows, and where nobody else can
 * take one while the counter is lent: not with MPI_THREAD_MULTIPLE. Either way one tag is taken in each call, so that
 * ranks need not do alike: libnbc takes none on a rank that has nothing to send or receive in place, and then the next
 * non-blocking collectives of the ranks would not find each other.
 */
#include "coll_mpath_request.h"

#include "ompi/mca/coll/base/coll_tags.h"
#include "ompi/runtime/mpiruntime.h"

/* The counter begins anew in some way at its end, which is left to the others. */
#define TAG_MARGIN 1024

/* In place is another function inside some components. */
static uint32_t tag_bit(const mca_coll_mpath_arguments_t *arguments)
{
    return 1u << (2 * (unsigned)arguments->kind + (MPI_IN_PLACE == arguments->sbuf));
}

static bool tag_is_regular(int32_t tag)
{
    return (MCA_COLL_BASE_TAG_NONBLOCKING_BASE >= tag) && (MCA_COLL_BASE_TAG_NONBLOCKING_END + TAG_MARGIN < tag);
}

bool mca_coll_mpath_tag_take(mca_coll_mpath_module_t *module, const mca_coll_mpath_arguments_t *arguments,
                             int32_t *tag_p)
{
    struct ompi_communicator_t *comm = module->comm;
    int32_t tag                      = comm->c_nbc_tag;

    if ((0 == (module->takes_one_tag & tag_bit(arguments))) || !tag_is_regular(tag) ||
        (MPI_THREAD_MULTIPLE == ompi_mpi_thread_provided)) {
        return false;
    }
    comm->c_nbc_tag = tag - 1;
    *tag_p          = tag;
    return true;
}

int32_t mca_coll_mpath_tag_look(const mca_coll_mpath_module_t *module)
{
    return module->comm->c_nbc_tag;
}

void mca_coll_mpath_tag_learn(mca_coll_mpath_module_t *module, const mca_coll_mpath_arguments_t *arguments,
                              int32_t before)
{
    if (module->comm->c_nbc_tag == before - 1) {
        module->takes_one_tag |= tag_bit(arguments);
    } else if ((module->comm->c_nbc_tag == before) && tag_is_regular(before)) {
        module->comm->c_nbc_tag = before - 1;
    }
}

int32_t mca_coll_mpath_tag_lend(mca_coll_mpath_module_t *module, int32_t tag)
{
    int32_t next = module->comm->c_nbc_tag;

    module->comm->c_nbc_tag = tag;
    return next;
}

void mca_coll_mpath_tag_return(mca_coll_mpath_module_t *module, int32_t next)
{
    module->comm->c_nbc_tag = next;
}
