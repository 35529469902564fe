"""Arm's kernels print numbers in place of a name."""

from __future__ import annotations

from peerwatch_common.arm_cpus import arm_cpus

CORE = (
    "processor\t: {}\nBogoMIPS\t: 2000.00\nFeatures\t: fp asimd sve2\nCPU implementer\t: 0x41\n"
    "CPU architecture: 8\nCPU variant\t: 0x0\nCPU part\t: {}\nCPU revision\t: 0\n\n"
)


def test_each_design_is_named_once() -> None:
    grace = "".join(CORE.format(number, "0xd4f") for number in range(72))

    assert arm_cpus(grace) == ("Arm 0x41 0xd4f",)
    # The exporter reads the beginning of the file only.
    assert arm_cpus(grace[:4096]) == ("Arm 0x41 0xd4f",)
    assert arm_cpus(CORE.format(0, "0xd0c") + CORE.format(1, "0xd05")) == (
        "Arm 0x41 0xd05",
        "Arm 0x41 0xd0c",
    )


def test_other_files_name_none() -> None:
    for text in ("", "processor\t: 0\nmodel name\t: A CPU\n", "CPU implementer\t: 0x41\n" * 50):
        assert arm_cpus(text) == ()
