"""What can happen to a job, as data: the mechanisms, their labels, and what is observed of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from peerwatch_common.errors import ConfigError
from peerwatch_common.settings.load import mistakes_of
from peerwatch_common.settings.yaml_file import read_yaml
from peerwatch_detector.diagnosis.root.evidence.evidence import KINDS, Kind

FOLDER = Path(__file__).parent / "mechanisms"
_FAN_OUTS = "fan_outs.yaml"

Part = Literal["development", "validation"]
PARTS: tuple[Part, ...] = get_args(Part)
Launcher = Literal["torchrun", "slurm", "kubernetes"]
LAUNCHERS: tuple[Launcher, ...] = get_args(Launcher)
# Of whom the ranks of an observation are: the one of the GPU that fails, rank 0 of the node, ...
Ranks = Literal["gpu", "first", "one", "some", "all"]
Domain = Literal["user", "software", "hardware", "none", "unknown"]


def _listed(value: object) -> object:
    return value if isinstance(value, list) else [value]


def _span(value: object) -> object:
    return value if isinstance(value, list) else [value, value]


Names = Annotated[tuple[str, ...], BeforeValidator(_listed)]
Span = Annotated[tuple[float, float], BeforeValidator(_span)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Label(_Strict):
    """What is right to say about a mechanism; hosts by their roles in it.

    Parameters
    ----------
    domain
        Whose fault it is; any of several where sources disagree or the evidence cannot tell. None
        of a job that nothing is wrong with, unknown where it is right not to decide.
    symptom
        Symptoms of Meta's taxonomy that describe it (and the few more that it lacks); ``any``.
    isolate
        The hosts to isolate, all of them.
    may_isolate
        Hosts that are at fault or cut off, of which isolation is not the only right answer.
    named
        Hosts that may be named, as where it began, but not isolated.
    """

    domain: Annotated[tuple[Domain, ...], BeforeValidator(_listed)]
    symptom: Names
    isolate: Names = ()
    may_isolate: Names = ()
    named: Names = ()


class Line(_Strict):
    """One line of a story: what is observed, when, and on which hosts.

    Parameters
    ----------
    at
        Earliest and latest time, in seconds after the onset, or after the collective time-out.
    where
        The hosts: ``all``, ``others`` (not those that fail), ``neighbours of ROLE``, ``rack`` and
        ``outside`` (of the first host that fails), ``one of SELECTOR``, a role; ``job`` if no host.
    share
        Least and largest share of these hosts.
    ranks
        The ranks of a host that it is about; None if it is about no rank.
    chance
        Probability that there is such a line.
    tells
        Whether the host, the domain or both can be known from it.
    peer
        Whom it complains about: a selector, ``neighbour`` or ``any``.
    launcher
        Only with this launcher.
    repeat
        Least and largest count.
    kind, what
        Kind of evidence, and its name; for log and kernel the text, or texts of which one is drawn
        for a job.
    value, event_class, text, signal, code, device, job_id
        Further entries of the evidence, ``signal`` and ``code`` of a process that ended.
    every_gpu, second_gpu
        About all GPUs of a host, or another one than the first.
    gone
        Whether nothing comes from the host any more.
    play, of, delay
        Insert this fan-out for this role, so many seconds later.
    """

    at: Span = (0.0, 0.0)
    after: Literal["onset", "timeout"] = "onset"
    where: str = ""
    share: Span = (1.0, 1.0)
    ranks: Ranks | None = None
    chance: float = Field(default=1.0, gt=0, le=1)
    tells: frozenset[Literal["host", "domain"]] = frozenset()
    peer: str = ""
    launcher: Launcher | None = None
    repeat: tuple[int, int] = (1, 1)
    kind: Kind | None = None
    what: Names = ()
    value: float | None = None
    event_class: str = ""
    text: str = ""
    signal: str = ""
    code: int | None = None
    job_id: str = ""
    every_gpu: bool = False
    second_gpu: bool = False
    gone: bool = False
    play: str = ""
    of: str = ""
    delay: float = 0.0

    @model_validator(mode="before")
    @classmethod
    def _kind_is_a_key(cls, entry: object) -> object:
        """Read ``xid: 79`` as kind and name, and ``tells: true`` as both."""
        if not isinstance(entry, Mapping):
            return entry
        found = dict(entry)
        kinds = [key for key in found if key in KINDS]
        if len(kinds) != ("play" not in found):
            raise ValueError(f"names the kinds {kinds}: one is needed, of {', '.join(KINDS)}")
        if kinds:
            what = found.pop(kinds[0])
            texts = what if isinstance(what, list) else [what]
            found |= {"kind": kinds[0], "what": [str(text) for text in texts]}
        if "class" in found:
            found["event_class"] = found.pop("class")
        tells = found.get("tells", [])
        if isinstance(tells, (bool, str)):
            both = tells in (True, "all")
            found["tells"] = ["host", "domain"] if both else [tells] if tells else []
        return found


class Mechanism(_Strict):
    """One way for a job to fail, or to look as if it did.

    Parameters
    ----------
    name, title, source
        Its name, a sentence, and the publications that it and its label are from.
    part
        Whether rules may be developed with it. Whole mechanisms are kept apart for validation.
    label
        What is right to say about it.
    story
        What is observed, fan-outs inserted.
    nodes
        Fewest and most nodes of its jobs.
    roles
        How many hosts a role has, beside ``culprit``, which has one.
    start
        Whether it happens while the job starts.
    launcher
        What starts the job; None if any does.
    group
        The file it is in.
    """

    name: str
    title: str
    source: str
    part: Part
    label: Label
    story: tuple[Line, ...]
    nodes: tuple[int, int] = (2, 512)
    roles: dict[str, int] = Field(default_factory=dict)
    start: bool = False
    launcher: Launcher | None = None
    group: str = ""


def load_mechanisms(folder: Path = FOLDER) -> tuple[Mechanism, ...]:
    """Read all mechanisms of a folder, by file and in its order.

    Raises
    ------
    ConfigError
        With every mistake in the files.
    """
    mistakes: list[str] = []
    fan_outs = {
        name: tuple(_line(line, f"{_FAN_OUTS}: {name}", mistakes) for line in lines)
        for name, lines in read_yaml(folder / _FAN_OUTS).items()
    }
    found: dict[str, Mechanism] = {}
    for file in sorted(folder.glob("*.yaml")):
        if file.name == _FAN_OUTS:
            continue
        for name, entry in read_yaml(file).items():
            if name in found:
                mistakes.append(f"{file.name}: {name}: stands in {found[name].group} too.")
            elif mechanism := _mechanism(name, entry, file, mistakes):
                found[name] = _with_fan_outs(mechanism, fan_outs, mistakes)
    if mistakes:
        raise ConfigError(mistakes)
    return tuple(found.values())


def _mechanism(name: str, entry: object, file: Path, mistakes: list[str]) -> Mechanism | None:
    try:
        if not isinstance(entry, dict):
            raise ConfigError([f"{file.name}: {name}: is no mapping."])
        return Mechanism.model_validate({**entry, "name": name, "group": file.stem})
    except ValidationError as error:
        mistakes += [f"{file.name}: {name}: {each}" for each in mistakes_of(error, Mechanism)]
    return None


def _line(entry: object, where: str, mistakes: list[str]) -> Line:
    try:
        return Line.model_validate(entry)
    except ValidationError as error:
        mistakes += [f"{where}: {each}" for each in mistakes_of(error, Line)]
    return Line.model_construct()


def _with_fan_outs(
    mechanism: Mechanism, fan_outs: Mapping[str, tuple[Line, ...]], mistakes: list[str]
) -> Mechanism:
    """Return the mechanism with the lines of its fan-outs in their places."""
    story: list[Line] = []
    for line in mechanism.story:
        if not line.play:
            story.append(line)
        elif line.play in fan_outs:
            story += [_of_role(each, line) for each in fan_outs[line.play]]
        else:
            mistakes.append(f"{mechanism.name}: plays {line.play!r}, which is no fan-out.")
    return mechanism.model_copy(update={"story": tuple(story)})


def _of_role(line: Line, played: Line) -> Line:
    """Return a line of a fan-out for the role that it is played for, and later."""
    return line.model_copy(
        update={
            "at": (line.at[0] + played.delay, line.at[1] + played.delay),
            "after": "timeout" if "timeout" in (line.after, played.after) else "onset",
            "where": _for_role(line.where, played.of),
            "peer": _for_role(line.peer, played.of),
            "of": played.of,
        }
    )


def _for_role(selector: str, role: str) -> str:
    return role.join(selector.rsplit("of", 1)) if role and selector.endswith("of") else selector
