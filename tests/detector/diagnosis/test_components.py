"""Who reaches what waits for nothing else, beside a search from every vertex."""

from random import Random

from peerwatch_detector.diagnosis.collectives.hang.components import sinks


def reached_from(edges: dict[int, list[int]], start: int) -> set[int]:
    found, left = {start}, [start]
    while left:
        new = set(edges.get(left.pop(), ())) - found
        found |= new
        left += new
    return found


def plain_sinks(edges: dict[int, list[int]]) -> set[tuple[frozenset[int], frozenset[int]]]:
    vertices = edges.keys() | {each for successors in edges.values() for each in successors}
    reach = {vertex: reached_from(edges, vertex) for vertex in vertices}
    leaves = {frozenset(own) for own in reach.values() if all(reach[each] == own for each in own)}
    return {
        (leaf, frozenset(each for each in vertices - leaf if leaf <= reach[each]))
        for leaf in leaves
    }


def test_random_graphs_have_the_sinks_that_a_search_from_every_vertex_finds() -> None:
    several = 0
    for seed in range(300):
        random = Random(seed)
        size = random.randint(1, 12)
        edges = {
            vertex: [random.randrange(size) for _ in range(random.choice((0, 1, 1, 2)))]
            for vertex in range(size)
            if random.random() < 0.8
        }
        found = {(frozenset(leaf), reached) for leaf, reached in sinks(edges)}
        assert plain_sinks(edges) == found, edges
        several += len(found) > 1
    assert several > 100


def test_what_thousands_wait_for_shares_who_does() -> None:
    graph = {"wait": list(range(9)), **{f"rank {number}": ["wait"] for number in range(9)}}

    found = sinks(graph)

    assert 9 == len(found)
    assert 1 == len({id(reached) for _, reached in found})
