"""``config --write-expectation``: this node as the model of its kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_checks.facts.expectation import write_expectation
from peerwatch_checks.facts.inventory import Roots, inventory
from peerwatch_checks.facts.services import service_facts
from peerwatch_checks.settings.load import load_settings
from peerwatch_common.errors import ConfigError

if TYPE_CHECKING:
    import argparse


def write(options: argparse.Namespace) -> str:
    """Write the file and return what to say about it.

    Raises
    ------
    ConfigError
        If the settings have mistakes, or the file cannot be written.
    """
    paths = load_settings(options.config).config.paths
    facts = inventory(Roots(paths.procfs, paths.sysfs, paths.rootfs)) | service_facts(paths.rootfs)
    try:
        write_expectation(options.write_expectation, facts)
    except OSError as error:
        text = f"{options.write_expectation}: cannot be written: {error.strerror}"
        raise ConfigError([text]) from error
    return (
        f"{options.write_expectation}: {len(facts)} keys; set it as checks.inventory.expectation "
        "and checks.services.expectation\n"
    )
