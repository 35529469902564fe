"""A driver that is not loaded, or whose library does not load, with real driver processes."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from driver_node import PATIENT, driver_node, restarts, values
from pci_tree import GPU, PciFiles
from peerwatch_exporter.driver.child import COMMAND

NAMES = ("gpu", "health")
EIGHT = {"gpu": {"expected_count": 8}}


def counts(reports):
    """Return the numbers of GPUs that are published, by metric."""
    found = values(reports["gpu"]) | values(reports["health"])
    return {key[0]: value for key, value in found.items() if key[0].startswith("gpus_")}


def given_up(reports):
    """Return whether every report says what came of the first child."""
    return all(r.success or r.error != "deadline_exceeded" for r in reports.values())


def with_gpus(root, count=8, driver=None):
    """Return settings of a node whose PCIe bus has GPUs, bound to a driver or to none."""
    files = PciFiles(root / "sys")
    for number in range(count):
        bdf = files.add(f"pci0000:10/0000:1{number}:00.0", GPU)
        if driver is not None:
            place = root / "sys" / "bus/pci/devices" / bdf / "driver"
            place.symlink_to(f"../../../bus/pci/drivers/{driver}")
    return {"paths": {"procfs": root / "proc", "sysfs": root / "sys"}}


@pytest.mark.parametrize(
    ("scenario", "word", "source"),
    [
        ({"no_library": True}, "nvml_library_not_found", "setting"),
        ({"no_library": True}, "nvml_library_not_found", "bus"),
        ({"init_error": 9}, "nvml_driver_not_loaded", "bus"),
        ({"init_error": 18}, "nvml_version_mismatch", "bus"),
        ({"init_error": 13}, "nvml_library_not_loadable", "setting"),
        ({"init_error": 999}, "nvml_error", "setting"),
        ({"gpus": []}, "nvml_no_gpu_listed", "bus"),
    ],
)
def test_gpus_that_no_driver_lists_are_not_visible_and_an_error(tmp_path, scenario, word, source):
    config = EIGHT if source == "setting" else with_gpus(tmp_path)
    with driver_node(tmp_path, scenario=scenario, names=NAMES, config=config) as node:
        reports = node.until(lambda r: all(report.error == word for report in r.values()))

    assert not any(report.success for report in reports.values())
    setting = {"gpus_configured": 8} if source == "setting" else {}
    assert {"gpus_visible": 0, "gpus_expected": 8, **setting} == counts(reports)
    # The reason is known: nobody is to be sent after a GPU that hangs.
    assert not any(report.stuck_seconds for report in reports.values())


@pytest.mark.parametrize("scenario", [{"no_library": True}, {"init_error": 9}])
@pytest.mark.parametrize("passed_through", [False, True])
def test_node_that_needs_no_gpu_is_quiet(tmp_path, scenario, passed_through, caplog):
    config = with_gpus(tmp_path, driver="vfio-pci") if passed_through else {}
    with (
        caplog.at_level(logging.WARNING),
        driver_node(tmp_path, scenario=scenario, names=NAMES, config=config) as node,
    ):
        reports = node.until(lambda r: all(report.success for report in r.values()))

    assert {} == counts(reports)
    assert not [r for r in caplog.records if "no GPU driver" in r.getMessage()]


def test_setting_of_no_gpu_outranks_the_bus(tmp_path):
    config = with_gpus(tmp_path) | {"gpu": {"expected_count": 0}}
    with driver_node(tmp_path, scenario={"no_library": True}, names=NAMES, config=config) as node:
        reports = node.until(lambda r: all(report.success for report in r.values()))

    assert {"gpus_configured": 0} == counts(reports)


@pytest.mark.parametrize(
    ("content", "text"),
    [(b"", "file too short"), (b"no library" * 99, "invalid ELF header")],
    ids=["empty", "text"],
)
def test_library_that_does_not_load_is_told_in_the_words_of_the_loader(
    tmp_path, monkeypatch, caplog, content, text
):
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libnvidia-ml.so.1").write_bytes(content)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path / "lib"))
    with driver_node(tmp_path, names=NAMES, config=with_gpus(tmp_path), command=COMMAND) as node:
        reports = node.until(given_up)

    assert {"nvml_library_not_loadable"} == {report.error for report in reports.values()}
    assert 0 == counts(reports)["gpus_visible"]
    told = [r.getMessage() for r in caplog.records if "libnvidia-ml.so.1" in r.getMessage()]
    assert told
    assert text in told[0]


def test_library_that_comes_back_ends_the_error(tmp_path):
    config = with_gpus(tmp_path, 3)
    scenario = {"init_error": 18}
    with driver_node(tmp_path, scenario=scenario, names=NAMES, config=config) as node:
        node.until(lambda r: restarts(r).get("library_failed", 0) >= 2)
        node.write(init_error=0)
        reports = node.until(lambda r: all(report.success for report in r.values()))

    assert {"gpus_visible": 3, "gpus_expected": 3} == counts(reports)


def test_node_without_driver_is_logged_once(tmp_path, caplog):
    limits = replace(PATIENT, absence=0.05)
    started = set()

    def three_started(_):
        started.update(node.children())
        return len(started) >= 3

    scenario = {"no_library": True}
    with (
        caplog.at_level(logging.INFO),
        driver_node(tmp_path, scenario=scenario, names=NAMES, limits=limits) as node,
    ):
        node.until(three_started)

    assert 1 == sum("no GPU driver" in record.getMessage() for record in caplog.records)
