"""Where the main thread of a rank is, from the stacks of all its threads as Python dumps them."""

from __future__ import annotations

import re
from dataclasses import dataclass

# As faulthandler writes them; innermost frame first.
_THREAD = re.compile(r"(?:Current thread|Thread) 0x[0-9a-f]+")
_FRAME = re.compile(r'\s*File "(?P<file>[^"\n]+)", line (?P<line>\d+) in (?P<function>.+)')
# Code that programs call, not what they consist of: the standard library, packages, frozen modules.
_LIBRARY = re.compile(r"/lib(?:64)?/python\d|[/\\](?:site|dist)-packages[/\\]|^<")


@dataclass(frozen=True, slots=True)
class _Frame:
    file: str
    line: int
    function: str

    @property
    def is_library(self) -> bool:
        return _LIBRARY.search(self.file) is not None

    @property
    def text(self) -> str:
        name = self.file.replace("\\", "/").rsplit("/", 1)[-1]
        return f"{name}:{self.line} ({self.function})"


def main_thread_place(dump: str) -> str:
    """Return the line of the program at which the main thread is.

    Parameters
    ----------
    dump
        Stacks of all threads, of torch's worker server or of ``faulthandler``.

    Returns
    -------
    str
        Such as ``train.py:118 (step)``: the innermost frame of the program's own files, and of a
        thread that is in none of them the innermost. Empty where no thread has frames.
    """
    threads = [frames for frames in _threads(dump) if frames]
    if not threads:
        return ""
    # Threads are listed with the newest first. Only the main one begins in a module.
    main = next((frames for frames in threads if frames[-1].function == "<module>"), threads[-1])
    return next((frame for frame in main if not frame.is_library), main[0]).text


def _threads(dump: str) -> list[list[_Frame]]:
    threads: list[list[_Frame]] = [[]]
    for line in dump.splitlines():
        if _THREAD.match(line):
            threads.append([])
        elif found := _FRAME.match(line):
            threads[-1].append(_Frame(found["file"], int(found["line"]), found["function"].strip()))
    return threads
