"""How right the root diagnosis is about incidents: hosts, domain, and healthy hosts isolated."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from peerwatch_demo.incidents.incident import Answer, Incident
from peerwatch_detector.backtest.evaluation import wilson
from peerwatch_detector.diagnosis.root.algorithm.algorithm import find_root
from peerwatch_detector.diagnosis.root.evidence.job_places import JobPlaces

# Actions that take a node out of service.
_TAKES_OUT = frozenset({"isolate", "replace", "drain"})


@dataclass(frozen=True, slots=True)
class Said:
    """What a diagnosis says, as far as it is measured.

    Parameters
    ----------
    isolated
        Nodes that it takes out of service.
    named
        Nodes that it names as where it began, those among them.
    domains, symptoms
        Whose fault it is, and what fails; of all causes that it names.
    """

    isolated: frozenset[str]
    named: frozenset[str]
    domains: frozenset[str]
    symptoms: frozenset[str]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """How right a diagnosis of one incident is.

    Parameters
    ----------
    name, mechanism, part
        Which incident it is about.
    host, domain, symptom
        Whether these are right.
    tells_host, tells_domain
        Whether what says so was observed.
    healthy_isolated
        Nodes that were taken out of service and are not at fault.
    said
        What was said.
    missing
        Sources that the incident lacks.
    """

    name: str
    mechanism: str
    part: str
    host: bool
    domain: bool
    symptom: bool
    tells_host: bool
    tells_domain: bool
    healthy_isolated: frozenset[str]
    said: Said
    missing: tuple[str, ...]


def evaluate(incident: Incident) -> Evaluation:
    """Diagnose an incident and compare the diagnosis with its answer."""
    return compare(incident, diagnosed(incident))


def compare(incident: Incident, said: Said) -> Evaluation:
    """Compare what is said about an incident with its answer."""
    answer = incident.answer
    return Evaluation(
        incident.name,
        incident.mechanism,
        incident.part,
        host=_host_right(said, answer),
        domain=_domain_right(said, answer),
        symptom="any" in answer.symptoms or bool(said.symptoms & answer.symptoms),
        tells_host=answer.tells_host,
        tells_domain=answer.tells_domain,
        healthy_isolated=said.isolated - answer.isolate - answer.may_isolate,
        said=said,
        missing=incident.missing,
    )


def diagnosed(incident: Incident) -> Said:
    """Return what the root diagnosis says about an incident."""
    root = find_root(incident.job, incident.events, job_id=incident.job_id)
    places = [cause.place for cause in root.causes if cause.place]
    out = [cause for cause in root.causes if cause.action in _TAKES_OUT]
    return Said(
        frozenset(node for cause in out for node in cause.nodes),
        frozenset(node for cause in root.causes for node in cause.nodes)
        | frozenset(node for place in places for node in _nodes_at(place, incident.job)),
        frozenset(cause.domain for cause in root.causes) or frozenset({"none"}),
        frozenset(cause.symptom for cause in root.causes),
    )


def _nodes_at(place: str, job: JobPlaces) -> frozenset[str]:
    """Return the nodes at a place such as "rack r7"; who names it names them."""
    level, _, name = place.partition(" ")
    return frozenset(node for node in job.nodes if job.places.get(node, {}).get(level) == name)


def _host_right(said: Said, answer: Answer) -> bool:
    """Whether all nodes are named that must be, and none that must not."""
    at_fault = answer.isolate | answer.may_isolate
    if said.isolated - at_fault or said.named - at_fault - answer.named:
        return False
    if not answer.tells_host:
        return True
    if answer.isolate:
        # Where only peers tell which node it is, it is right to name it and to wait.
        enough = said.isolated if answer.tells_domain else said.named
        return answer.isolate <= enough
    # Who rightly calls it the program's mistake need not name a node.
    programs = said.domains == {"user"} and "user" in answer.domains
    return programs or not answer.may_isolate or bool(said.named & answer.may_isolate)


def _domain_right(said: Said, answer: Answer) -> bool:
    allowed = answer.domains if answer.tells_domain else answer.domains | {"unknown", "none"}
    # "Nothing is wrong" and "it cannot be known" are both no decision.
    if allowed & {"none", "unknown"}:
        allowed |= {"none", "unknown"}
    return said.domains <= allowed


@dataclass(frozen=True, slots=True)
class Shares:
    """How many of some incidents are right.

    Parameters
    ----------
    incidents
        How many there are.
    host, domain, symptom
        In how many each is right.
    healthy_isolated
        In how many a node was taken out of service that is not at fault.
    """

    incidents: int
    host: int
    domain: int
    symptom: int
    healthy_isolated: int


def shares(evaluations: Iterable[Evaluation]) -> Shares:
    """Count what is right."""
    every = list(evaluations)
    return Shares(
        len(every),
        sum(each.host for each in every),
        sum(each.domain for each in every),
        sum(each.symptom for each in every),
        sum(bool(each.healthy_isolated) for each in every),
    )


def by_mechanism(evaluations: Iterable[Evaluation]) -> Mapping[str, list[Evaluation]]:
    """Return the incidents of each mechanism."""
    found: dict[str, list[Evaluation]] = defaultdict(list)
    for each in evaluations:
        found[each.mechanism].append(each)
    return found


def table(evaluations: Iterable[Evaluation], *, mechanisms: bool = False) -> str:
    """Return what is right as a table in Markdown, by part, and by mechanism if asked for.

    Intervals are Wilson's, at 95 %. Incidents of one mechanism resemble one another, so that they
    are rather too narrow.
    """
    every = list(evaluations)
    parts = sorted({each.part for each in every})
    lines = [
        "| part | mechanisms | incidents | host right | domain right | symptom right | "
        "a healthy host isolated |",
        "|---|---|---|---|---|---|---|",
    ]
    for part in parts:
        chosen = [each for each in every if each.part == part]
        lines.append(f"| {part} | {len(by_mechanism(chosen))} {_cells(shares(chosen))}")
    if mechanisms:
        lines += ["", "| mechanism | part | incidents | host | domain | symptom | isolated |"]
        lines.append("|---|---|---|---|---|---|---|")
        for name, chosen in by_mechanism(every).items():
            found = shares(chosen)
            lines.append(
                f"| {name} | {chosen[0].part} | {found.incidents} | {found.host} | {found.domain} "
                f"| {found.symptom} | {found.healthy_isolated} |"
            )
    return "\n".join(lines) + "\n"


def _cells(found: Shares) -> str:
    return (
        f"| {found.incidents} | {_share(found.host, found.incidents)} "
        f"| {_share(found.domain, found.incidents)} | {_share(found.symptom, found.incidents)} "
        f"| {found.healthy_isolated} |"
    )


def _share(right: int, of: int) -> str:
    share = wilson(right, of)
    if share.value is None or share.low is None or share.high is None:
        return "-"
    return f"{100 * share.value:.1f} % ({100 * share.low:.0f}-{100 * share.high:.0f})"
