"""YAML files of the repository, read once in a process: the rules' tests are thousands of lines."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml

# libyaml's, where PyYAML was built with it, takes a tenth of the time.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


@cache
def read_yaml(file: Path) -> Any:
    """Return what a file holds; it is shared, so nobody may change it."""
    return yaml.load(file.read_text(), Loader=_LOADER)


def yaml_text(content: Any) -> str:
    """Return what a file with this content holds, in its order."""
    text: str = yaml.dump(content, Dumper=_DUMPER, sort_keys=False, width=1000)
    return text
