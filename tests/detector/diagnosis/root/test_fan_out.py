"""What many nodes show at once isolates none of them, whatever it is; a node's own sign does."""

import pytest

from detector.diagnosis.root.failed_job import JOB, NODES, ev, exits, line, root_of, timeouts
from each_case import each_case
from peerwatch_detector.diagnosis.root.algorithm.algorithm import Root
from peerwatch_detector.diagnosis.root.algorithm.fan_out import MOST_NODES, most_nodes
from peerwatch_detector.diagnosis.root.evidence.evidence import Evidence
from peerwatch_detector.diagnosis.root.evidence.job_places import JobPlaces
from peerwatch_detector.diagnosis.root.taxonomy.rules import rule_book
from peerwatch_detector.diagnosis.root.text import summary_text

STALLED = ev(0, "step", "stalled")


def isolated(root: Root) -> set[str]:
    """Return the nodes that a diagnosis takes out of service."""
    out = [each for each in root.causes if each.action in ("isolate", "replace", "drain")]
    return {node for each in out for node in each.nodes}


def sign(key: str, time: float, node: str) -> Evidence:
    """Return an observation that falls under a key of the rules, of the first rank of a node."""
    start, _, name = key.partition(":")
    kind, _, class_name = start.partition("/")
    of_a_rank = kind in ("log", "process", "collective", "heartbeat")
    return ev(
        time,
        kind,  # type: ignore[arg-type]
        "of-a-kind" if name == "*" else name,
        node,
        class_name=class_name,
        rank=8 * NODES.index(node) if of_a_rank else None,
    )


@each_case("key", sorted(rule_book().by_key))
def test_one_sign_on_many_nodes_isolates_none_unless_it_is_their_own(key: str) -> None:
    rule = rule_book().by_key[key]
    own = rule.role == "critical" and rule.domain == "hardware"
    for apart in (0.5, 45.0, 130.0):
        for count in (3, 5, 8):
            signs = [sign(key, apart * i - 120, node) for i, node in enumerate(NODES[:count])]

            found = isolated(root_of(STALLED, *signs))

            assert len(found) <= (MOST_NODES if own else 0), (apart, count, found)


def test_gpus_lost_one_after_the_other_isolate_the_first_nodes_only() -> None:
    lost = [ev(130 * i, "xid", "79", node, gpu="0") for i, node in enumerate(NODES[:3])]

    assert {"n0", "n1"} == isolated(root_of(STALLED, *lost))


def test_tasks_that_hang_on_many_nodes_are_no_nodes_fault_though_reported_one_by_one() -> None:
    hung = [
        ev(100 + 70 * i, "kernel", "hung_task", node, class_name="H")
        for i, node in enumerate(NODES[:5])
    ]

    root = root_of(STALLED, *hung, *timeouts(600))

    assert set() == isolated(root)
    assert "software" == root.causes[0].domain
    assert "what 5 nodes share" == root.causes[0].place


def test_a_verdict_about_one_of_many_nodes_with_a_sign_follows_from_it() -> None:
    hung = [ev(5 + i, "kernel", "hung_task", node, class_name="H") for i, node in enumerate(NODES)]
    silent = ev(30, "collective", "not_launched", "n3", class_name="sure", rank=24)
    odd = ev(30, "traffic", "stopped", "n3")

    assert set() == isolated(root_of(STALLED, *hung, silent, odd, *timeouts(600)))


@pytest.mark.parametrize(
    ("changed", "expected"),
    [(NODES, set()), (NODES[5:6], {"n5"}), (NODES[:3], {"n5"}), ((), {"n5"})],
)
def test_a_driver_that_was_changed_on_many_nodes_is_not_one_nodes(
    changed: tuple[str, ...], expected: set[str]
) -> None:
    updates = [ev(-9000, "change", "driver_update", node) for node in changed]
    unfit = line(60, "cuda_driver_version", "P", 40)

    root = root_of(*updates, unfit, *exits(70))

    assert expected == isolated(root)
    assert "software" == root.causes[0].domain
    if not expected:
        assert summary_text(root.causes[0], root, JOB).startswith(
            "Examine what was changed before a restart: only n5 shows it so far"
        )


def test_a_node_with_a_sign_of_its_own_beside_one_of_many_is_isolated() -> None:
    hung = [ev(9 + i, "kernel", "hung_task", node, class_name="H") for i, node in enumerate(NODES)]

    root = root_of(STALLED, ev(1, "xid", "79", "n6", gpu="2"), *hung, *timeouts(600))

    assert {"n6"} == isolated(root)


def test_tasks_that_hang_on_one_node_are_its_own() -> None:
    root = root_of(ev(2, "kernel", "hung_task", "n4", class_name="H"), *timeouts(600))

    assert {"n4"} == isolated(root)


@pytest.mark.parametrize(
    ("name", "nodes", "expected"),
    [("hung_task", 2, 1), ("hung_task", 5, 1), ("hung_task", 6, 2), ("nic_link_down", 4, 2)],
)
def test_in_a_small_job_fewer_nodes_fail_of_software_by_themselves(
    name: str, nodes: int, expected: int
) -> None:
    rule = rule_book().by_key[f"kernel:{name}"]

    assert expected == most_nodes(rule, JobPlaces(NODES[:nodes]))


def test_a_failed_check_is_of_the_kind_that_the_nodes_own_lines_say() -> None:
    failed = ev(20, "check", "nvml", "n2", class_name="fail")
    said = line(30, "cuda_driver_version", "P", 16)

    (cause,) = root_of(STALLED, failed, said).causes

    assert (("n2",), "gpu_driver", "software", "isolate") == (
        cause.nodes,
        cause.symptom,
        cause.domain,
        cause.action,
    )


def test_a_disk_that_is_full_for_the_ranks_of_one_node_is_its_own() -> None:
    full = [line(1 + i, "storage_full", "S", 32 + i) for i in range(2)]

    (cause,) = root_of(*full, *timeouts(600)).causes

    assert (("n4",), "software", "ask") == (cause.nodes, cause.domain, cause.action)
    assert set() == isolated(root_of(*full))


def test_a_full_file_system_of_which_only_the_first_rank_writes_is_anybodys() -> None:
    (cause,) = root_of(line(1, "storage_full", "S", 0), *timeouts(600)).causes

    assert () == cause.nodes


def test_a_setting_that_breaks_connections_is_examined_where_nothing_else_is_known() -> None:
    mtu = ev(-100, "config", "nic.mtu", "n5", class_name="minority")

    (cause,) = root_of(mtu, *timeouts(600)).causes

    assert (("n5",), "software", "inspect", "undecided") == (
        cause.nodes,
        cause.domain,
        cause.action,
        cause.confidence,
    )


def test_a_switch_that_loses_packets_isolates_none_of_its_nodes() -> None:
    lost = [
        ev(40 + i, "reach", "lost", NODES[i], peer_node=NODES[4 + (i + j) % 4])
        for i in range(4)
        for j in range(2)
    ]
    broken = [
        line(30, "nccl_ib_retry_exceeded", "N", 8 * source, peer_node="n4") for source in (1, 2)
    ]
    later = [
        line(60 + i, "nccl_ib_retry_exceeded", "N", 8 * i, peer_node=NODES[7 - i]) for i in range(4)
    ]

    root = root_of(STALLED, *lost, *broken, *later)

    assert set() == isolated(root)
    assert "leaf l0" == root.causes[0].place
