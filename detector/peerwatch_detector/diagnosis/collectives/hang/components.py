"""Strongly connected components of a directed graph, and who reaches each of them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import TypeVar

Vertex = TypeVar("Vertex", bound=Hashable)


def components(edges: Mapping[Vertex, Iterable[Vertex]]) -> list[list[Vertex]]:
    """Return the strongly connected components, each after all it has an edge to.

    Parameters
    ----------
    edges
        By vertex, where its edges go; vertices without an entry have none.

    Notes
    -----
    Tarjan, "Depth-first search and linear graph algorithms" (1972), without recursion: chains of
    waiting ranks are as long as a pipeline.
    """
    index: dict[Vertex, int] = {}
    lowest: dict[Vertex, int] = {}
    stack: list[Vertex] = []
    on_stack: set[Vertex] = set()
    found: list[list[Vertex]] = []
    path: list[tuple[Vertex, Iterator[Vertex]]] = []

    def enter(vertex: Vertex) -> None:
        index[vertex] = lowest[vertex] = len(index)
        stack.append(vertex)
        on_stack.add(vertex)
        path.append((vertex, iter(edges.get(vertex, ()))))

    for root in edges:
        if root not in index:
            enter(root)
        while path:
            vertex, successors = path[-1]
            for successor in successors:
                if successor not in index:
                    enter(successor)
                    break
                if successor in on_stack:
                    lowest[vertex] = min(lowest[vertex], index[successor])
            else:
                path.pop()
                if path:
                    above = path[-1][0]
                    lowest[above] = min(lowest[above], lowest[vertex])
                if lowest[vertex] == index[vertex]:
                    found.append(_cut(stack, on_stack, vertex))
    return found


def _cut(stack: list[Vertex], on_stack: set[Vertex], vertex: Vertex) -> list[Vertex]:
    """Take the vertices from ``vertex`` on off the stack."""
    component: list[Vertex] = []
    while not component or component[-1] != vertex:
        component.append(stack.pop())
    on_stack.difference_update(component)
    return component


def sinks(
    edges: Mapping[Vertex, Iterable[Vertex]],
) -> list[tuple[list[Vertex], frozenset[Vertex]]]:
    """Return the components without an edge to another one, each with all vertices that reach it.

    The vertices of a component are not among those that reach it.
    """
    leaves: list[list[Vertex]] = []
    leaf_of: dict[Vertex, int] = {}
    # What each other vertex reaches: a bit for each of the leaves, of which there are few, and
    # vertices that reach the same ones share it.
    reach: dict[Vertex, int] = {}
    masks: dict[int, int] = {}
    alike: dict[int, list[Vertex]] = {}
    # Components come after those they have an edge to.
    for component in components(edges):
        own = frozenset(component)
        mask = 0
        for vertex in component:
            for successor in edges.get(vertex, ()):
                if successor in leaf_of:
                    mask |= 1 << leaf_of[successor]
                elif successor not in own:
                    mask |= reach[successor]
        if mask:
            mask = masks.setdefault(mask, mask)
            alike.setdefault(mask, []).extend(component)
            reach |= dict.fromkeys(component, mask)
        else:
            leaf_of |= dict.fromkeys(component, len(leaves))
            leaves.append(component)
    return list(zip(leaves, _reaching(len(leaves), alike), strict=True))


def _reaching(leaves: int, alike: Mapping[int, list[Vertex]]) -> list[frozenset[Vertex]]:
    """Return the vertices that reach each leaf, from those that reach the same leaves.

    Leaves that the same vertices reach share one set of them: thousands of ranks that did not
    launch are waited for by thousands.
    """
    reaching: list[list[int]] = [[] for _ in range(leaves)]
    sets = list(alike.values())
    for number, mask in enumerate(alike):
        rest = mask
        while rest:
            lowest = rest & -rest
            reaching[lowest.bit_length() - 1].append(number)
            rest ^= lowest
    keys = [tuple(numbers) for numbers in reaching]
    found: dict[tuple[int, ...], frozenset[Vertex]] = {
        key: frozenset().union(*(sets[number] for number in key)) for key in set(keys)
    }
    return [found[key] for key in keys]
