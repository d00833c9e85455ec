/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the ranks make of NICs that some of them have lost: which are left out, for how long, and when they are used
 * again. Nothing moves here; the ranks only tell each other what a call would have shown them.
 */
#include "unit/lost_nics.h"
#include "util/time.h"
#include "wire/wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define RANKS 4
#define NODES 2
#define NICS 3
#define FIRST_S 10 /* that a NIC is left out at least */
#define MOST_S 640
#define HOUR_NS (3600 * MPATH_NS_PER_S)

typedef struct scene {
    ranks_self_t *self;
    mpath_context_t *context;
    mpath_team_t *team;
    mpath_links_t *links;
} scene_t;

static void open_team(scene_t *scene, ranks_self_t *self, mpath_context_t *context, const mpath_oob_t *oob)
{
    scene->self    = self;
    scene->context = context;
    ranks_check(mpath_team_create(context, oob, &scene->team) == MPATH_OK);
    scene->links = lost_open_links(scene->team);
}

static void open_scene(scene_t *scene, ranks_self_t *self)
{
    open_team(scene, self, lost_context(self), &self->oob);
}

static int close_scene(scene_t *scene)
{
    ranks_barrier(scene->self);
    mpath_team_destroy(scene->team);
    mpath_context_destroy(scene->context);
    return 0;
}

/* The end of a good call; the leaders of these nodes find that NICs which are out may be asked again. */
static void end_good_call(const scene_t *scene, uint32_t due_nodes)
{
    int is_due = (due_nodes >> scene->team->node) & 1;

    scene->team->next_probe_ns = is_due ? 0 : mpath_time_ns() + HOUR_NS;
    scene->team->recover_in    = 0;
    ranks_check(mpath_failover_recover(scene->team) == MPATH_OK);
}

static void check_wait(const scene_t *scene, uint64_t since_ns, uint64_t wait_s)
{
    ranks_check(scene->team->next_probe_ns >= since_ns + wait_s * MPATH_NS_PER_S);
    ranks_check(scene->team->next_probe_ns <= mpath_time_ns() + wait_s * MPATH_NS_PER_S);
}

/* A NIC that fails again and again is left out for twice as long each time, up to a limit. */
static int again_body(ranks_self_t *self, void *argument)
{
    uint64_t out_s = FIRST_S;
    scene_t scene;

    (void)argument;
    open_scene(&scene, self);
    for (int failure = 0; failure < 8; failure++) {
        int rail_before  = mpath_links_rail(scene.links, 2);
        uint64_t lost_ns = mpath_time_ns();

        lose(scene.team, 1, 1u << 2);
        check_out(scene.team, 1u << 2, 0);
        check_wait(&scene, lost_ns, out_s);
        ranks_check(mpath_failover_recover(scene.team) == MPATH_OK); /* much too early */
        check_out(scene.team, 1u << 2, 0);
        end_good_call(&scene, 3);
        check_out(scene.team, 0, 0);
        ranks_check(mpath_links_rail(scene.links, 2) != rail_before); /* new connections */
        out_s = (2 * out_s < MOST_S) ? 2 * out_s : MOST_S;
    }
    return close_scene(&scene);
}

/* More ends that turn out to be dead are no failure of a rail that was used again, and one after a long time is new. */
static int other_ends_body(ranks_self_t *self, void *argument)
{
    uint64_t lost_ns;
    scene_t scene;

    (void)argument;
    open_scene(&scene, self);
    for (int failure = 0; failure < 3; failure++) {
        for (int nic = 0; nic < NICS; nic++) {
            lost_ns = mpath_time_ns();
            lose(scene.team, 1, 1u << nic);
            check_wait(&scene, lost_ns, FIRST_S << failure);
        }
        end_good_call(&scene, 3);
        check_out(scene.team, 0, 0);
    }
    scene.team->back_ns -= (MOST_S + 1) * MPATH_NS_PER_S;
    lost_ns = mpath_time_ns();
    lose(scene.team, 3, 1u << 0);
    check_wait(&scene, lost_ns, FIRST_S);
    return close_scene(&scene);
}

/* A NIC that is out on two nodes comes back when both find it up; before, the one end would send to nobody. */
static int both_ends_body(ranks_self_t *self, void *argument)
{
    scene_t scene;

    (void)argument;
    open_scene(&scene, self);
    lose(scene.team, 0, 1u << 1);
    lose(scene.team, 3, 1u << 1);
    check_out(scene.team, 1u << 1, 1u << 1);
    end_good_call(&scene, 1);
    check_out(scene.team, 1u << 1, 1u << 1);
    end_good_call(&scene, 2);
    check_out(scene.team, 1u << 1, 1u << 1);
    end_good_call(&scene, 3);
    check_out(scene.team, 0, 0);
    return close_scene(&scene);
}

/* The folder in which the carrier of a NIC is looked for, given to a NIC of one rank's table as its name. */
#define LINK_FOLDER "/tmp/mpath.XXXXXX"
typedef struct link {
    char folder[sizeof(LINK_FOLDER)];
    char file[MPATH_NIC_NAME_MAX + 16];
    char *name, before[MPATH_NIC_NAME_MAX];
} link_t;

static void plug(link_t *link, const scene_t *scene, int nic)
{
    strcpy(link->folder, LINK_FOLDER);
    ranks_check(mkdtemp(link->folder) != NULL);
    snprintf(link->file, sizeof(link->file), "%s/carrier", link->folder);
    link->name = (char *)mpath_topo_machine(scene->team->topo, scene->team->node)->nics[nic].name;
    strcpy(link->before, link->name);
    snprintf(link->name, MPATH_NIC_NAME_MAX, "../../..%s", link->folder); /* from /sys/class/net */
}

static void set_carrier(const link_t *link, const scene_t *scene, int carrier)
{
    FILE *file = fopen(link->file, "w");

    ranks_check((file != NULL) && (fprintf(file, "%d\n", carrier) > 0));
    ranks_check(fclose(file) == 0);
    scene->team->next_carrier_ns = 0;
}

static void unplug(link_t *link)
{
    strcpy(link->name, link->before);
    ranks_check((unlink(link->file) == 0) && (rmdir(link->folder) == 0));
}

/* Both are due, and stay out for as long as one of them has no carrier. */
static int no_carrier_body(ranks_self_t *self, void *argument)
{
    scene_t scene;
    link_t link;

    (void)argument;
    open_scene(&scene, self);
    lose(scene.team, 0, 1u << 1);
    lose(scene.team, 3, 1u << 1);
    plug(&link, &scene, 1);
    for (int up_nodes = 0; up_nodes < 3; up_nodes++) {
        set_carrier(&link, &scene, (up_nodes >> scene.team->node) & 1);
        end_good_call(&scene, 3);
        check_out(scene.team, 1u << 1, 1u << 1);
    }
    set_carrier(&link, &scene, 1);
    end_good_call(&scene, 3);
    check_out(scene.team, 0, 0);
    unplug(&link);
    return close_scene(&scene);
}

/* The one end was blamed for the silence of a rail whose other end has no carrier: it stays out until that has one. */
static int dark_end_body(ranks_self_t *self, void *argument)
{
    scene_t scene;
    link_t link;

    (void)argument;
    open_scene(&scene, self);
    lose(scene.team, 0, 1u << 1);
    plug(&link, &scene, 1);
    set_carrier(&link, &scene, scene.team->node == 0);
    for (int call = 0; call < 2; call++) {
        end_good_call(&scene, 3);
        check_out(scene.team, 1u << 1, 1u << 1);
    }
    set_carrier(&link, &scene, 1);
    end_good_call(&scene, 3);
    check_out(scene.team, 0, 0);
    unplug(&link);
    return close_scene(&scene);
}

/* The second leader comes to it a call later than the first, and need not wait for the first to look again. */
static int later_end_body(ranks_self_t *self, void *argument)
{
    scene_t scene;

    (void)argument;
    open_scene(&scene, self);
    lose(scene.team, 0, 1u << 1);
    lose(scene.team, 3, 1u << 1);
    end_good_call(&scene, 1);
    check_out(scene.team, 1u << 1, 1u << 1);
    if (scene.team->node == 1) {
        scene.team->next_probe_ns = 0;
    }
    scene.team->recover_in = 0;
    ranks_check(mpath_failover_recover(scene.team) == MPATH_OK);
    check_out(scene.team, 0, 0);
    return close_scene(&scene);
}

/* Of calls that do not settle by themselves each eighth one asks: it costs an agreement. */
static int seldom_body(ranks_self_t *self, void *argument)
{
    scene_t scene;

    (void)argument;
    open_scene(&scene, self);
    lose(scene.team, 0, 1u << 1);
    end_good_call(&scene, 0);
    scene.team->next_probe_ns = 0;
    for (int call = 0; call < 7; call++) {
        ranks_check(mpath_failover_recover(scene.team) == MPATH_OK);
        check_out(scene.team, 1u << 1, 0);
    }
    ranks_check(mpath_failover_recover(scene.team) == MPATH_OK);
    check_out(scene.team, 0, 0);
    return close_scene(&scene);
}

/* Of three nodes one has a dead cable, for which the others have blamed their own: these come back without it. */
static int third_end_body(ranks_self_t *self, void *argument)
{
    scene_t scene;

    (void)argument;
    open_scene(&scene, self);
    for (int rank = 0; rank < self->size; rank++) {
        lose(scene.team, rank, 1u << 1);
    }
    end_good_call(&scene, 1);
    ranks_check(scene.team->lost[0] == 1u << 1); /* to whom should it send? */
    end_good_call(&scene, 1 | 4);
    ranks_check(scene.team->lost[0] == 0);
    ranks_check(scene.team->lost[1] == 1u << 1);
    ranks_check(scene.team->lost[2] == 0);
    end_good_call(&scene, 2);
    ranks_check(scene.team->lost[1] == 0);
    return close_scene(&scene);
}

/*
 * Where rails are only silent, those that are furthest behind of all are to blame; where one has failed outright, the
 * silence of the others is its work.
 */
static int silent_body(ranks_self_t *self, void *argument)
{
    const mpath_failover_loss_t told[RANKS] = {{.silent = 1u << 0, .progress = 9},
                                               {.silent = 0, .progress = 0},
                                               {.silent = 1u << 2, .progress = 7},
                                               {.silent = 1u << 1, .progress = 5}};
    mpath_failover_loss_t mine              = told[self->rank];
    scene_t scene;

    open_scene(&scene, self);
    (void)argument;
    ranks_check(lost_end_call(scene.team, &mine) == MPATH_AGAIN);
    check_out(scene.team, 0, 1u << 1);
    mine.lost = (self->rank == 2) ? 1u << 0 : 0;
    ranks_check(lost_end_call(scene.team, &mine) == MPATH_AGAIN);
    check_out(scene.team, 0, 1u << 1 | 1u << 0);
    return close_scene(&scene);
}

/* Repeating such a call would not help. */
static int nothing_lost_body(ranks_self_t *self, void *argument)
{
    const mpath_failover_loss_t nothing = {0};
    scene_t scene;

    (void)argument;
    open_scene(&scene, self);
    ranks_check(lost_end_call(scene.team, (self->rank == 2) ? &nothing : NULL) == MPATH_ERR_UNREACHABLE);
    check_out(scene.team, 0, 0);
    return close_scene(&scene);
}

/* A team that comes later to a NIC which has failed twice does not take the rail that the other team has lost. */
static int other_team_body(ranks_self_t *self, void *argument)
{
    mpath_context_t *context = lost_context(self);
    scene_t early, late;
    mpath_oob_t oob;
    int first, second;

    (void)argument;
    ranks_oob(self, 1, NULL, self->size, &oob);
    open_team(&early, self, context, &self->oob);
    open_team(&late, self, context, &oob);
    first = mpath_links_rail(early.links, 2);
    ranks_check(mpath_links_rail(late.links, 2) == first);
    lose(early.team, 1, 1u << 2);
    end_good_call(&early, 3);
    second = mpath_links_rail(early.links, 2);
    lose(early.team, 1, 1u << 2);
    lose(late.team, 0, 1u << 2);
    end_good_call(&late, 3);
    ranks_check((mpath_links_rail(late.links, 2) != first) && (mpath_links_rail(late.links, 2) != second));
    end_good_call(&early, 3);
    ranks_check(mpath_links_rail(early.links, 2) == mpath_links_rail(late.links, 2)); /* found there */
    ranks_barrier(self);
    mpath_team_destroy(late.team);
    return close_scene(&early);
}

static int cannot_join;

/* Instead of mpath_fabric_join_rail(), by the linker. */
mpath_status_t __real_mpath_fabric_join_rail(mpath_fabric_t *fabric, int number, uint64_t id,
                                             mpath_fabric_arrive_t arrive, void *argument);
mpath_status_t __wrap_mpath_fabric_join_rail(mpath_fabric_t *fabric, int number, uint64_t id,
                                             mpath_fabric_arrive_t arrive, void *argument);
mpath_status_t __wrap_mpath_fabric_join_rail(mpath_fabric_t *fabric, int number, uint64_t id,
                                             mpath_fabric_arrive_t arrive, void *argument)
{
    return cannot_join ? MPATH_ERR_NO_MEMORY : __real_mpath_fabric_join_rail(fabric, number, id, arrive, argument);
}

/* A rank that cannot have the wire is as the others in later calls. */
static int no_wire_body(ranks_self_t *self, void *argument)
{
    mpath_wire_t *wire;
    scene_t scene;
    int mine, all[RANKS];

    (void)argument;
    open_scene(&scene, self);
    cannot_join = self->rank == 2;
    ranks_check(mpath_wire_get(scene.team, MPATH_LINKS_ALL, &wire) == MPATH_DECLINED);
    cannot_join = 0;
    ranks_check(mpath_wire_get(scene.team, MPATH_LINKS_ALL, &wire) == MPATH_DECLINED);
    mine = self->rank;
    ranks_check(mpath_team_allgather(scene.team, &mine, sizeof(mine), all) == MPATH_OK);
    for (int rank = 0; rank < RANKS; rank++) {
        ranks_check(all[rank] == rank);
    }
    return close_scene(&scene);
}

/*
 * A NIC that has a carrier again and that one rank has no memory to use: nothing is carried any more, over the wire
 * neither, and giving up a call finds nothing to give up.
 */
static int not_joined_body(ranks_self_t *self, void *argument)
{
    mpath_wire_t *wire;
    scene_t scene;

    (void)argument;
    open_scene(&scene, self);
    ranks_check(mpath_wire_get(scene.team, MPATH_LINKS_ALL, &wire) == MPATH_OK);
    lose(scene.team, 1, 1u << 2);
    cannot_join = self->rank == 1;
    end_good_call(&scene, 3);
    cannot_join = 0;
    ranks_check(mpath_links_status(scene.links) == MPATH_DECLINED);
    ranks_check(mpath_wire_get(scene.team, MPATH_LINKS_ALL, &wire) == MPATH_DECLINED);
    ranks_check(mpath_links_peer(scene.links, 2, (self->rank + 2) % RANKS, 2) < 0);
    ranks_check(mpath_failover_recover(scene.team) == MPATH_OK);
    mpath_wire_abandon(wire);
    return close_scene(&scene);
}

static void run(ranks_body_t body)
{
    const ranks_setup_t setup = {.size = RANKS, .nodes = NODES, .nics = NICS};

    assert_int_equal(ranks_run(&setup, body, NULL), 0);
}

static void test_again(void **state)
{
    (void)state;
    run(again_body);
}

static void test_other_ends(void **state)
{
    (void)state;
    run(other_ends_body);
}

static void test_both_ends(void **state)
{
    (void)state;
    run(both_ends_body);
}

static void test_no_carrier(void **state)
{
    (void)state;
    run(no_carrier_body);
}

static void test_dark_end(void **state)
{
    (void)state;
    run(dark_end_body);
}

static void test_seldom(void **state)
{
    (void)state;
    run(seldom_body);
}

static void test_later_end(void **state)
{
    (void)state;
    run(later_end_body);
}

static void test_third_end(void **state)
{
    const ranks_setup_t setup = {.size = 3, .nodes = 3, .nics = NICS};

    (void)state;
    assert_int_equal(ranks_run(&setup, third_end_body, NULL), 0);
}

static void test_silent(void **state)
{
    (void)state;
    run(silent_body);
}

static void test_nothing_lost(void **state)
{
    (void)state;
    run(nothing_lost_body);
}

static void test_other_team(void **state)
{
    (void)state;
    run(other_team_body);
}

static void test_no_wire(void **state)
{
    (void)state;
    run(no_wire_body);
}

static void test_not_joined(void **state)
{
    (void)state;
    run(not_joined_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_again),        cmocka_unit_test(test_both_ends),  cmocka_unit_test(test_other_ends),
        cmocka_unit_test(test_no_carrier),   cmocka_unit_test(test_dark_end),   cmocka_unit_test(test_seldom),
        cmocka_unit_test(test_later_end),    cmocka_unit_test(test_third_end),  cmocka_unit_test(test_silent),
        cmocka_unit_test(test_nothing_lost), cmocka_unit_test(test_other_team), cmocka_unit_test(test_not_joined),
        cmocka_unit_test(test_no_wire),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
