"""The largest set of nodes that all reach each other."""

from __future__ import annotations

from collections.abc import Mapping

from daisychain.core.ids import NodeId


def largest_clique(links: Mapping[NodeId, frozenset[NodeId]], anchor: NodeId | None) -> tuple[NodeId, ...]:
    """Return the largest set of mutually linked nodes, sorted; ties go to the least node ids.

    ``links`` maps a node to the others that it is mutually linked with. ``anchor``, if given, is a
    member. Bron and Kerbosch (1973) with pivots; a chain has at most some dozens of nodes, and the usual
    one, where everybody reaches everybody, ends after the first branch.
    """
    best: tuple[NodeId, ...] = ()

    def extend(clique: frozenset[NodeId], open_: set[NodeId], closed: set[NodeId]) -> None:
        nonlocal best
        if len(clique) + len(open_) < len(best):
            return
        if not open_:
            if not closed:
                found = tuple(sorted(clique))
                if (-len(found), found) < (-len(best), best):
                    best = found
            return
        pivot = max(sorted(open_ | closed), key=lambda node: len(links[node] & open_))
        for node in sorted(open_ - links[pivot]):
            extend(clique | {node}, open_ & links[node], closed & links[node])
            open_.remove(node)
            closed.add(node)

    if anchor is None:
        extend(frozenset(), set(links), set())
    else:
        extend(frozenset({anchor}), set(links[anchor]), set())
    return best
