"""The scripts that complete the command lines, run by the shells themselves."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from peerwatch_checks.process.command_line import make_parser as checks
from peerwatch_common.completion import SHELLS, completion
from peerwatch_detector.command_line import parser as detector
from peerwatch_exporter.process.command_line import make_parser as exporter

PARSERS = {
    "peerwatch-check": checks,
    "peerwatch-detector": detector,
    "peerwatch-exporter": exporter,
}
# What each shell does before it calls the function.
CALL = {
    "bash": "",
    "zsh": "emulate sh; ",
}


def completed(shell: str, folder: Path, *words: str) -> set[str]:
    """Return what a shell offers for the last word, in a folder."""
    program = words[0]
    script = folder.parent / f"{program}.{shell}"
    script.write_text(completion(PARSERS[program](), shell))
    quoted = " ".join(f"'{word}'" for word in words)
    command = (
        f"source {script}; {CALL[shell]}COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; "
        f'_{program.replace("-", "_")}; printf "%s\\n" "${{COMPREPLY[@]}}"'
    )
    bare = {"bash": ["--norc", "--noprofile"], "zsh": ["-f"]}[shell]
    done = subprocess.run(
        [shell, *bare, "-c", command],
        cwd=folder,
        # zsh keeps what compinit found in the home directory.
        env=os.environ | {"HOME": str(folder.parent), "ZDOTDIR": str(folder.parent)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    # zsh's compgen leaves it to zsh's own matching to choose what begins as the word does.
    return {line for line in done.stdout.splitlines() if line and line.startswith(words[-1])}


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest) -> str:
    if not shutil.which(request.param):
        pytest.skip(f"{request.param} is not installed")
    return request.param


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("peerwatch-detector fi", {"files"}),
        ("peerwatch-detector files r", {"rules"}),
        ("peerwatch-detector files --o", {"--overwrite"}),
        ("peerwatch-detector run --log-l", {"--log-level"}),
        ("peerwatch-detector train --device c", {"cpu", "cuda"}),
        ("peerwatch-detector train --device = c", {"cpu", "cuda"}),
        ("peerwatch-detector run --config a", {"a case", "a.yaml"}),
        ("peerwatch-detector backtest -j 2 a", {"a case", "a.yaml"}),
        ("peerwatch-detector run --prometheus a", set()),
        ("peerwatch-check li", {"light", "link_errors", "link_rates", "list"}),
        ("peerwatch-check light filesystem", {"filesystem_space"}),
        ("peerwatch-check --mode e", {"epilog"}),
        ("peerwatch-exporter be", {"bench"}),
        ("peerwatch-exporter --path.k", {"--path.kmsg"}),
        ("peerwatch-exporter --log-format j", {"json"}),
        ("peerwatch-exporter --config a", {"a case", "a.yaml"}),
    ],
)
def test_a_shell_offers_what_fits(
    words: str, offered: set[str], shell: str, tmp_path: Path
) -> None:
    folder = tmp_path / "work"
    (folder / "a case").mkdir(parents=True)
    (folder / "a.yaml").touch()

    assert offered == completed(shell, folder, *words.split(" "))


@pytest.mark.parametrize("program", PARSERS)
def test_the_script_is_printed(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    parser = PARSERS[program]()
    with pytest.raises(SystemExit) as caught:
        parser.parse_args(["--print-completion", "zsh"])
    assert (0, completion(parser, "zsh")) == (caught.value.code, capsys.readouterr().out)
