# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Shell functions that configure and build a tree below build/; sourced by ./demo and scripts/stages.sh, which run in the
# top folder of the project.

# configured_here: true where configure was run in this folder itself, and says so: automake takes no other build beside that one.
configured_here() {
    [[ -e config.status ]] || return 1
    echo "configure was run in this folder itself, and no other build can be made beside that one: run 'make distclean' here first"
}

# generated_sum: of what autogen.sh reads and of what it writes.
generated_sum() {
    find . \( -path ./build -o -path ./.git -o -path ./autom4te.cache \) -prune -o -type f \( -name '*.ac' -o -name '*.am' -o -name '*.mk' \
        -o -name '*.m4' -o -name autogen.sh -o -name configure -o -name Makefile.in -o -name '*.h.in' \) -print0 | sort -z | xargs -0 sha256sum | sha256sum
}

# generate_configure: runs autogen.sh, which takes seconds where it has nothing to do, unless all is as it was after it ran last.
generate_configure() {
    local sum=build/generated.sum
    [[ $(cat "$sum" 2>/dev/null) != "$(generated_sum)" ]] || return 0
    ./autogen.sh >/dev/null && mkdir -p build && generated_sum >"$sum"
}

# configure_tree DIR ARGS...: configures DIR with ARGS unless it is already configured with just these.
configure_tree() {
    local dir=$1 top=$PWD
    shift
    # Several builds may share this source folder: one at a time generates configure.
    if [[ -w . ]]; then
        (exec 9<configure.ac && flock 9 && generate_configure) || return 1
    fi
    mkdir -p "$dir"
    (
        # Stages that run at a time share trees. The folder itself is locked by ./demo, whose tree it is.
        cd "$dir" && exec 9>.mpath_lock && flock 9 || exit
        if [[ -f config.status && $(cat .mpath_args 2>/dev/null) == "$*" ]]; then
            exit 0
        fi
        # By a path from there: configure takes no source folder with a blank in its name.
        "$(realpath --relative-to=. "$top")/configure" -q "$@" && echo "$*" >.mpath_args
    )
}

# take_kernels FROM DIR: the GPU kernels, half a minute of nvcc, as the tree FROM has compiled them, if it has. With their time,
# so that make compiles them anew where a source is newer. nvcc gets the same options in all trees.
take_kernels() {
    local file
    if [[ -f $1/src/device/kernels/image.c && -f $1/src/device/kernels/kernels.fatbin ]]; then
        mkdir -p "$2/src/device/kernels"
        for file in kernels.fatbin image.c; do
            cp -p "$1/src/device/kernels/$file" "$2/src/device/kernels/$file"
        done
    fi
}

# make_tree DIR [ARGS...]: one at a time, as stages that run at a time share trees.
make_tree() {
    (exec 9>"$1/.mpath_lock" && flock 9 && make -s -j2 -C "$@")
}

# build_tree DIR ARGS...: configures and makes.
build_tree() {
    configure_tree "$@" && make_tree "$1"
}

# build_programs TARGET DIR ARGS...: also makes the programs TARGET of tests/Makefile.am (mpi-programs, fuzz-programs).
build_programs() {
    local target=$1
    shift
    build_tree "$@" && make_tree "$1" -C tests "$target"
}
