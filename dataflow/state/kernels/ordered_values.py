"""Kernels of ordered multisets: one treap for each root, all of them in one table of nodes.

A treap (Aragon, Seidel 1989: "Randomized search trees") is a search tree over values that is also a heap over
priorities. The priority is a hash of the value's words, so the shape of a tree depends on its values alone, and its
depth is logarithmic on average.

A node is a row of int64 words: multiplicity, positive multiplicities of its subtree, sizes of its subtree, left child,
right child, number of the freeze before which it was made, nulls, and the words of its value. Node 0 is no node: it is
the missing child, and its words stay 0. The sizes are (nodes << 32) + nodes with a positive multiplicity.

``columns`` has an entry for each word of a value: the bit of its column in ``nulls``, negated if the word is the code
of a byte string, ``arena[texts[code, 0]:texts[code, 1]]``. Other words compare as signed integers.

Nodes that were made before freeze ``fixed`` may be read by others, so they never change: a changed one is copied, with
all nodes above it, and the old one is listed in ``retired``.

``state`` is (nodes ever used, entries of ``retired``, of ``free``, of ``fresh``, of ``gone``).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from dataflow.kernel_cache.decorator import kernel
from dataflow.state.kernels.index import take_slot
from dataflow.state.kernels.words import (
    READ_RECORDS,
    RECORDS,
    RI32,
    RI64,
    RU8,
    WI32,
    WI64,
    hash_word,
    load,
)

__all__ = ["FIRST_WORD", "add_values", "list_nodes", "seek_ranks"]

MULTIPLICITY, POSITIVE, SIZES, LEFT, RIGHT, BORN, NULLS, FIRST_WORD = range(8)
RETIRED, FREE, FRESH, GONE = 1, 2, 3, 4
ONE_NODE = 1 << 32


@kernel(types.int64(RU8, READ_RECORDS, types.int64, types.int64))
def compare_bytes(arena: Any, texts: Any, left: Any, right: Any) -> Any:
    """Return -1, 0 or 1: the order of two byte strings, given by their codes."""
    at, other = texts[left, 0], texts[right, 0]
    length, others = texts[left, 1] - at, texts[right, 1] - other
    common = min(length, others)
    done = types.int64(0)
    while done + 8 <= common and load(arena, at + done) == load(arena, other + done):
        done += 8
    while done < common:
        if arena[at + done] != arena[other + done]:
            return types.int64(-1) if arena[at + done] < arena[other + done] else types.int64(1)
        done += 1
    return types.int64(length > others) - types.int64(length < others)


@kernel(types.int64(READ_RECORDS, types.int64, types.int64, READ_RECORDS, types.int64, RI64, RU8, READ_RECORDS))
def compare(values: Any, row: Any, nulls: Any, nodes: Any, node: Any, columns: Any, arena: Any, texts: Any) -> Any:
    """Return -1, 0 or 1: how the value of ``row`` compares with that of ``node``. Null is greater than all values."""
    differing = nulls ^ nodes[node, NULLS]
    for k in range(columns.size):
        bit = abs(columns[k])
        if differing & bit:
            return types.int64(1) if nulls & bit else types.int64(-1)
        mine, other = values[row, k], nodes[node, FIRST_WORD + k]
        if mine != other:
            if columns[k] < 0:
                return compare_bytes(arena, texts, mine, other)
            return types.int64(-1) if mine < other else types.int64(1)
    return types.int64(0)


@kernel(types.uint64(READ_RECORDS, types.int64, types.int64, types.int64))
def priority(table: Any, row: Any, first: Any, nulls: Any) -> Any:
    """Return the priority of the value whose words are in ``table[row, first:]``."""
    state = types.uint64(nulls)
    for k in range(first, table.shape[1]):
        state = hash_word(state ^ types.uint64(table[row, k]))
    return state


@kernel(types.void(RECORDS, types.int64))
def sum_up(nodes: Any, node: Any) -> None:
    """Compute the totals of ``node`` from its children."""
    held = nodes[node, MULTIPLICITY]
    left, right = nodes[node, LEFT], nodes[node, RIGHT]
    nodes[node, POSITIVE] = nodes[left, POSITIVE] + nodes[right, POSITIVE] + max(held, 0)
    nodes[node, SIZES] = nodes[left, SIZES] + nodes[right, SIZES] + ONE_NODE + types.int64(held > 0)


@kernel(types.void(RECORDS, types.int64, types.int64, WI64, WI32, WI32))
def drop_node(nodes: Any, node: Any, fixed: Any, state: Any, free: Any, retired: Any) -> None:
    """Free ``node``, or list it in ``retired`` if others may read it."""
    if nodes[node, BORN] >= fixed:
        free[state[FREE]] = node
        state[FREE] += 1
    else:
        retired[state[RETIRED]] = node
        state[RETIRED] += 1


@kernel(types.int64(RECORDS, types.int64, types.int64, types.int64, WI64, WI32, WI32))
def writable(nodes: Any, node: Any, born: Any, fixed: Any, state: Any, free: Any, retired: Any) -> Any:
    """Return ``node`` if it may change, else a copy that replaces it."""
    if nodes[node, BORN] >= fixed:
        return node
    copy = take_slot(state, free, nodes.shape[0])
    for k in range(nodes.shape[1]):
        nodes[copy, k] = nodes[node, k]
    nodes[copy, BORN] = born
    retired[state[RETIRED]] = node
    state[RETIRED] += 1
    return copy


@kernel(types.int64[::1](WI64))
def doubled(path: Any) -> Any:
    """Return a path with room for twice as many nodes."""
    longer = np.empty(2 * path.size, np.int64)
    longer[: path.size] = path
    return longer


@kernel(
    types.int64(
        RECORDS,
        RI32,
        types.int64,
        READ_RECORDS,
        RI64,
        RI64,
        types.int64,
        types.int64,
        types.int64,
        RI64,
        RU8,
        READ_RECORDS,
        RECORDS,
        WI64,
        WI32,
        WI32,
        WI32,
        RECORDS,
    )
)
def add_values(
    records: Any,
    places: Any,
    word: Any,
    values: Any,
    nulls: Any,
    weights: Any,
    row: Any,
    born: Any,
    fixed: Any,
    columns: Any,
    arena: Any,
    texts: Any,
    nodes: Any,
    state: Any,
    free: Any,
    retired: Any,
    fresh: Any,
    gone: Any,
) -> Any:
    """Add value i to the tree whose root is ``records[places[i], word]``, ``weights[i]`` times, from ``row`` on.

    Rows with a new value are listed in ``fresh``, the words of values that left in ``gone``.
    Returns the first row for which ``nodes`` or ``retired`` has no room, or the number of rows.
    """
    path, turns = np.empty(64, np.int64), np.empty(64, np.int64)
    for i in range(row, places.size):
        if weights[i] == 0:
            continue
        place = types.uint64(places[i])
        # Find the value: path[:depth] are the nodes above it, turns[j] says on which side of path[j] it is.
        depth, order, node = 0, types.int64(1), records[place, word]
        while node != 0:
            mine, other = values[i, 0], nodes[node, FIRST_WORD]
            if mine != other and columns[0] > 0 and nulls[i] == nodes[node, NULLS]:  # most often, without a call
                order = types.int64(-1) if mine < other else types.int64(1)
            else:
                order = compare(values, i, nulls[i], nodes, node, columns, arena, texts)
                if order == 0:
                    break
            if depth == path.size:
                path, turns = doubled(path), doubled(turns)
            path[depth], turns[depth] = node, order
            depth += 1
            node = nodes[node, LEFT if order < 0 else RIGHT]
        before = nodes[node, MULTIPLICITY]
        after = before + weights[i]
        # The nodes to change below path[:top]: where its children merge if the value leaves, or where a subtree is
        # split if it is new.
        top, stop, child = depth, depth, types.int64(0)
        if node != 0 and after == 0:
            left, right = nodes[node, LEFT], nodes[node, RIGHT]
            while left != 0 and right != 0:
                if stop == path.size:
                    path, turns = doubled(path), doubled(turns)
                upper = priority(nodes, left, FIRST_WORD, nodes[left, NULLS])
                if upper >= priority(nodes, right, FIRST_WORD, nodes[right, NULLS]):
                    path[stop], turns[stop] = left, 1
                    left = nodes[left, RIGHT]
                else:
                    path[stop], turns[stop] = right, -1
                    right = nodes[right, LEFT]
                stop += 1
            child = left + right
        elif node == 0:
            own = priority(values, i, 0, nulls[i])
            while top > 0 and priority(nodes, path[top - 1], FIRST_WORD, nodes[path[top - 1], NULLS]) < own:
                top -= 1
        needed = stop + 2
        if nodes.shape[0] - state[0] + state[FREE] < needed or retired.size - state[RETIRED] < needed:
            return i

        positive = max(after, 0) - max(before, 0)
        sizes = types.int64(after > 0) - types.int64(before > 0)
        if node == 0:
            child = take_slot(state, free, nodes.shape[0])
            low, high = types.int64(0), types.int64(0)
            for j in range(depth - 1, top - 1, -1):
                held = writable(nodes, path[j], born, fixed, state, free, retired)
                if turns[j] > 0:
                    nodes[held, RIGHT] = low
                    low = held
                else:
                    nodes[held, LEFT] = high
                    high = held
                sum_up(nodes, held)
            nodes[child, MULTIPLICITY], nodes[child, BORN], nodes[child, NULLS] = after, born, nulls[i]
            nodes[child, LEFT], nodes[child, RIGHT] = low, high
            for k in range(values.shape[1]):
                nodes[child, FIRST_WORD + k] = values[i, k]
            sum_up(nodes, child)
            sizes += ONE_NODE
            fresh[state[FRESH]] = i
            state[FRESH] += 1
        elif after == 0:
            for j in range(stop - 1, top - 1, -1):
                held = writable(nodes, path[j], born, fixed, state, free, retired)
                nodes[held, RIGHT if turns[j] > 0 else LEFT] = child
                sum_up(nodes, held)
                child = held
            for k in range(values.shape[1]):
                gone[state[GONE], k] = nodes[node, FIRST_WORD + k]
            state[GONE] += 1
            sizes -= ONE_NODE
            drop_node(nodes, node, fixed, state, free, retired)
        else:
            child = writable(nodes, node, born, fixed, state, free, retired)
            nodes[child, MULTIPLICITY] = after
            nodes[child, POSITIVE] += positive
            nodes[child, SIZES] += sizes
        for j in range(top - 1, -1, -1):
            held = path[j]
            if nodes[held, BORN] < fixed:
                held = writable(nodes, held, born, fixed, state, free, retired)
            nodes[held, RIGHT if turns[j] > 0 else LEFT] = child
            nodes[held, POSITIVE] += positive
            nodes[held, SIZES] += sizes
            child = held
        records[place, word] = child
    return places.size


@kernel(types.void(RI64, READ_RECORDS, RI64, WI32))
def list_nodes(roots: Any, nodes: Any, ends: Any, out: Any) -> None:
    """Write the nodes of each tree in order; those of tree i end at ``ends[i]``."""
    path = np.empty(64, np.int64)
    for i in range(roots.size):
        node, depth = roots[i], 0
        at = ends[i] - (nodes[node, SIZES] >> 32)
        while node != 0 or depth > 0:
            while node != 0:
                if depth == path.size:
                    path = doubled(path)
                path[depth] = node
                depth += 1
                node = nodes[node, LEFT]
            depth -= 1
            node = path[depth]
            out[at] = node
            at += 1
            node = nodes[node, RIGHT]


@kernel(types.void(RI64, RI64, READ_RECORDS, WI32))
def seek_ranks(roots: Any, ranks: Any, nodes: Any, out: Any) -> None:
    """Write the node of the value of rank ``ranks[i]`` in tree i, each value counted by its multiplicity; 0: none."""
    for i in range(roots.size):
        node, rank, found = roots[i], ranks[i], types.int64(0)
        while node != 0 and 0 <= rank < nodes[node, POSITIVE]:
            left = nodes[node, LEFT]
            rank -= nodes[left, POSITIVE]
            if rank < 0:
                rank += nodes[left, POSITIVE]
                node = left
                continue
            rank -= max(nodes[node, MULTIPLICITY], 0)
            if rank < 0:
                found = node
                break
            node = nodes[node, RIGHT]
        out[i] = found
