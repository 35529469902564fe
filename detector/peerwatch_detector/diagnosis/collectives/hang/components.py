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
    found = components(edges)
    place = {vertex: number for number, component in enumerate(found) for vertex in component}
    numbers = {vertex: bit for bit, vertex in enumerate(place)}
    # A bit for each vertex: who reaches a component, itself included.
    reach = [sum(1 << numbers[vertex] for vertex in component) for component in found]
    leaves = [True] * len(found)
    # Components come after those they have an edge to, so from the last one on all that reach
    # a component are known.
    for number in reversed(range(len(found))):
        for vertex in found[number]:
            for successor in edges.get(vertex, ()):
                if place[successor] != number:
                    leaves[number] = False
                    reach[place[successor]] |= reach[number]
    order = list(place)
    return [
        (component, frozenset(_vertices(mask, order)) - frozenset(component))
        for component, mask, leaf in zip(found, reach, leaves, strict=True)
        if leaf
    ]


def _vertices(mask: int, order: list[Vertex]) -> Iterator[Vertex]:
    for bit, digit in enumerate(reversed(f"{mask:b}")):
        if digit == "1":
            yield order[bit]
