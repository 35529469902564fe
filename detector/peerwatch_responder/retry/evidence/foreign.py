"""Knows an error of another language's runtime by its first line: its text has no signature."""

from __future__ import annotations

import re

# What stands before the end was got over. Chosen: four times unknown.py's, because some runtimes
# print the stacks of all their threads after an error.
_END_BYTES = 256 * 1024
# Language, texts of which each match contains one, form. Most logs have none of the texts, which
# are found at memory speed; then its form is not even compiled.
_FORMS = (
    (
        "Java",
        (b"Exception in thread ",),
        rb"^Exception in thread \"[^\"\n]{1,200}\" [\w.$]{3,200}",
    ),
    (
        "Java",
        (b"Caused by: ",),
        rb"^Caused by: (?:[a-z]\w*\.){1,12}\w*(?:Exception|Error)\b",
    ),
    (
        "Go",
        (b"panic: ", b"fatal error: all"),
        rb"^(?:panic: |fatal error: all goroutines are asleep)",
    ),
    ("Rust", (b"panicked at ",), rb"^thread '[^'\n]{1,200}' (?:\(\d{1,12}\) )?panicked at "),
    (
        "JavaScript",
        (b"  at ",),
        rb"^(?:Uncaught )?(?:[A-Z]\w{0,60})?Error: [^\n]{1,400}\n {2,8}at [^\n]{1,400}:\d",
    ),
    ("C#", (b"Unhandled exception. ",), rb"^Unhandled exception\. System\.[\w.]{3,200}"),
    (
        "Julia",
        (b"ERROR: ",),
        rb"^ERROR: (?:LoadError: )?"
        rb"(?:[A-Z]\w{0,60}(?:Error|Exception)\b|[^\n]{1,300}\nStacktrace:)",
    ),
    (
        "R",
        (b"Error in ",),
        rb"^Error in [^\n]{1,300} : ?\n?[^\n]{0,400}\n(?:Calls: |Execution halted)",
    ),
    (
        "Ruby",
        (b".rb:",),
        rb"^[^\s:]{1,200}\.rb:\d{1,7}:in [`'][^\n]{1,200}\(\w{0,60}(?:Error|Exception)\)",
    ),
    (
        "Perl",
        (b".pl line ", b".pm line "),
        rb"^[^\n]{1,300} at [^\s]{1,200}\.p[lm] line \d{1,7}\.$",
    ),
    ("Lua", (b"lua",), rb"^lua\w{0,10}: [^\s:]{1,200}:\d{1,7}: "),
    (
        "Fortran",
        (b"Fortran runtime error: ", b"forrtl: "),
        rb"^(?:Fortran runtime error: |forrtl: severe \()",
    ),
    ("MPI", (b"MPI_ABORT was invoked",), rb"^MPI_ABORT was invoked on rank "),
)


def foreign_error(text: bytes) -> tuple[str, int] | None:
    """Return the language of the last error of another runtime, and where it begins; None: none."""
    start = max(0, len(text) - _END_BYTES)
    found: tuple[str, int] | None = None
    for language, texts, form in _FORMS:
        if all(text.find(each, start) < 0 for each in texts):
            continue
        for match in re.compile(form, re.MULTILINE).finditer(text, start):
            if found is None or match.start() > found[1]:
                found = language, match.start()
    return found
