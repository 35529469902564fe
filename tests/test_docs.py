"""The documents written by hand agree with the code they are about."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from all_metrics import ALL_METRICS
from each_case import each_case
from peerwatch_demo.simulated_node.scenarios import SCENARIOS
from peerwatch_exporter.catalog.hardware import HARDWARE
from peerwatch_exporter.collector import registrations
from peerwatch_exporter.settings.load import load_config

ROOT = Path(__file__).parents[1]
README = ROOT / "exporter" / "README.md"
EXPORTER = ROOT / "docs" / "exporter.md"
FAQ = ROOT / "docs" / "faq.md"
DOCUMENTS = sorted(
    path
    for folder in (".", "docs", "docs/runbooks", "detector", "exporter", "helm/peerwatch")
    for path in (ROOT / folder).glob("*.md")
)
PACKAGES = {path.parent.name: path.parent for path in ROOT.glob("*/peerwatch_*/__init__.py")}
FOLDERS = ("exporter", "detector", "docs", "rules", "dashboards", "helm", "tests")
PREFIXES = ("gpu_", "nvlink_", "nvswitch_", "nic_", "pcie_", "host_", "rank_", "fast_")


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def test_the_readme_lists_every_collector() -> None:
    section = text_of(README).split("## Collectors", 1)[1].split("\n## ", 1)[0]
    listed = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
    assert sorted(registrations()) == sorted(listed)


@pytest.mark.parametrize("path", [README, EXPORTER, FAQ], ids=lambda path: path.stem)
def test_metrics_named_exist(path: Path) -> None:
    words = set(re.findall(r"`([a-z][a-z0-9_]+)(?:\{[^`]*\})?`", text_of(path)))
    metrics = {word for word in words if word.startswith((*PREFIXES, "exporter_"))}
    collectors = set(registrations())
    assert set() == metrics - set(ALL_METRICS) - collectors


@pytest.mark.parametrize("path", [README, EXPORTER], ids=lambda path: path.parent.name)
def test_scenarios_named_exist(path: Path) -> None:
    named = set(re.findall(r"peerwatch_demo\.exporter ([a-z_]+)", text_of(path)))
    assert named
    assert set() == named - set(SCENARIOS)


def test_switched_off_collectors_exist() -> None:
    table = text_of(EXPORTER).split("## Running alongside other exporters", 1)[1]
    rows = [line.split("|")[2:4] for line in table.splitlines() if line.startswith("| ")][1:]
    lists = [names for row in rows for cell in row for names in re.findall(r"`([a-z_, ]+)`", cell)]
    named = {name for words in lists for name in words.split(", ")}
    assert {"cpu", "nic"} <= named
    assert set() == named - set(registrations())


def anchors(path: Path) -> set[str]:
    """Return the anchors of a document's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)", text_of(path), re.MULTILINE)
    plain = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title) for title in titles]
    return {re.sub(r"[^a-z0-9_ -]", "", title.lower()).replace(" ", "-") for title in plain}


def module_exists(name: str) -> bool:
    """Return whether a dotted name is a package, a module, or something that one of them has."""
    package, *rest = name.split(".")
    place = PACKAGES[package].joinpath(*rest)
    if place.is_dir() or place.with_suffix(".py").exists():
        return True
    inside = (place.parent / "__init__.py", place.parent.with_suffix(".py"))
    return any(path.exists() and place.name in text_of(path) for path in inside)


@each_case("path", DOCUMENTS)
def test_links_lead_to_a_file_and_a_heading(path: Path) -> None:
    for link, heading in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", text_of(path)):
        target = path.parent / link if link else path
        assert target.exists(), link
        assert not heading or heading in anchors(target), f"{link}#{heading}"


@each_case("path", DOCUMENTS)
def test_files_and_modules_named_exist(path: Path) -> None:
    text = text_of(path)
    starts = "|".join(FOLDERS)
    named = set(re.findall(rf"(?<![\w./:-])((?:{starts})/[\w./-]*[\w/])", text))
    # A document may leave out the folder of its own component.
    roots = (ROOT, ROOT / "detector", ROOT / "exporter", path.parent)
    missing = [name for name in sorted(named) if not any((root / name).exists() for root in roots)]
    assert [] == missing
    modules = set(re.findall(rf"\b((?:{'|'.join(PACKAGES)})(?:\.\w+)+)", text))
    assert [] == [name for name in sorted(modules) if not module_exists(name)]


def test_the_example_shows_the_defaults() -> None:
    known = registrations()
    example = load_config(
        ROOT / "exporter" / "exporter.example.yaml", listen=None, known_collectors=known
    )
    assert load_config(None, listen=None, known_collectors=known) == example


def test_scraped_paths_are_those_served() -> None:
    config = yaml.safe_load(text_of(ROOT / "exporter" / "prometheus.example.yaml"))
    paths = {job.get("metrics_path", "/metrics") for job in config["scrape_configs"]}
    assert {"/metrics", "/metrics/fast"} == paths
    assert all(f"| `{path}` |" in text_of(EXPORTER) for path in paths)


def test_the_generated_document_has_every_metric_and_explains_what_it_needs() -> None:
    # The document itself is compared with this by `python docs/generate.py --check`.
    document = subprocess.run(
        [sys.executable, "-c", "import generate; print(generate.metrics_document())"],
        cwd=ROOT / "docs",
        env=os.environ | {"PYTHONPATH": os.pathsep.join([".", *sys.path])},
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    ).stdout
    assert [] == [name for name in HARDWARE if f"| {name} | " not in document]
    assert [] == [name for name in ALL_METRICS if f"| `{name}` | " not in document]
    assert re.search(r"^\| `gpu_energy_joules_total` .*\| Volta \|", document, re.MULTILINE)


def test_the_configuration_document_begins_with_few_settings_and_leaves_none_out() -> None:
    document = text_of(ROOT / "docs" / "configuration.md")
    common, everything = document.split("## Common settings", 1)[1].split("## All settings", 1)
    listed = re.findall(r"^\| `([\w.]+)` \|", everything, re.MULTILINE)
    chosen = re.findall(r"^\| (?:exporter|detector) \| `([\w.]+)` \|", common, re.MULTILINE)
    plain, switches = everything.split("### Settings of method minder", 1)

    assert 0 < len(chosen) <= 15
    assert set(chosen) <= set(listed)
    assert "`minder." not in plain
    assert "`peerwatch.away`" in switches.split("### Ablation switches", 1)[1]
    # Both programs have the sections listen and web; no other setting is listed twice.
    both = {"listen.address", "listen.port", "web.config_file", "web.max_connections"}
    assert {name for name in listed if listed.count(name) > 1} == both


def test_the_architecture_shows_every_room() -> None:
    house = text_of(ROOT / "docs" / "architecture.md").split("## The house", 1)[1]
    shown: dict[str, set[str]] = {}
    package = ""
    for first, folders in re.findall(r"^\|([^|]*)\|([^|]*)\|", house, re.MULTILINE):
        package = first.strip("` ") or package
        shown.setdefault(package, set()).update(re.findall(r"`(\w+)/`", folders))
    shown = {name: folders for name, folders in shown.items() if "/" in name}
    real = {
        str(folder.relative_to(ROOT)): {
            path.name for path in folder.iterdir() if any(path.glob("*.py"))
        }
        for folder in PACKAGES.values()
    }

    assert real == shown
