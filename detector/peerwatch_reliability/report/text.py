"""The books as text for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


# Chosen: of fewer nodes one that fails again or not would change the factor by a quarter and more.
_FEWEST_NAMED = 5


def report_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a report, from what ``document_of`` returns."""
    yield (
        f"{document['from']} to {document['to']}: {document['nodes']} nodes, "
        f"{document['jobs']} jobs, {document['attempts']} attempts, "
        f"{document['failures']} failures of the infrastructure, "
        f"{document['unexplained']} ends that nothing explains"
    )
    yield from _missing(document)
    yield ""
    yield f"ETTR of the cluster: {ettr_text(document['ettr'])}"
    for name, each in document["ettr_by_size"].items():
        yield f"  {name:>6} GPUs: {ettr_text(each)}"
    expected = document["expected"]
    if expected is None:
        yield "Expected ETTR: not known, for nothing failed"
    else:
        formulas = ", ".join(f"{k} {v:.3f}" for k, v in expected["formulas"].items())
        yield f"Expected of {expected['nodes']:g} nodes by the formulas: {formulas}"
        for each in expected["what_if"]:
            yield f"  checkpoint every {each['checkpoint_minutes']:>3} min: {each['ettr']:.3f}"
        yield f"  {optimum_text(expected)}"
    rate = document["failures_per_1000_node_days"]
    yield f"Failures per 1,000 node-days: {rate_text(rate)}"
    for each in document["mttf_by_size"]:
        line = "not known" if each["line_hours"] is None else number_text(each["line_hours"])
        hours = rate_text({**each["hours"], "count": each["failures"]})
        yield f"  {each['gpus']:>6} GPUs: MTTF in hours {hours}, 1/N line {line}"
    for name, each in document["causes"].items():
        yield f"  {name}: {rate_text(each)}"
    for name, each in document["components"].items():
        of_one = each["hours"] and {**each["hours"], "count": each["failures"]}
        number = "" if each["per_node"] is None else f" ({each['per_node']:g} a node)"
        yield f"  one {name}{number}: MTTF in hours {rate_text(of_one)}"
    if document["scaling"]:
        yield scaling_text(document["scaling"])
    for name, each in sorted(document["goodput_lost_gpu_hours"].items()):
        yield (
            f"Goodput lost to {name}: {each['first_order']:.1f} GPU-hours, "
            f"{each['second_order']:.1f} by preemptions that followed"
        )
    for name, hours in document["badput_gpu_hours"].items():
        yield f"Badput {name}: {hours:.1f} GPU-hours"
    yield from _incident_lines(document)
    for each in document["jobs_with_most_gpu_time"]:
        yield (
            f"Job {each['job_id']} ({each['name']!r} of {each['user']}), {each['gpus']} GPUs, "
            f"{number_text(each['gpu_hours'])} GPU-hours: ETTR {ettr_text(each['ettr'])}; "
            f"restarts: {each['restarts']}"
        )
    for each in document["crash_loops"]:
        yield (
            f"Crash loop: job {each['job_id']} ({each['name']!r} of {each['user']}), "
            f"{each['attempts']} attempts, {each['gpu_seconds'] / 3600:.1f} GPU-hours, "
            f"{each['preempted']} preemptions, common nodes {', '.join(each['nodes']) or 'none'}"
        )
    yield ""
    yield from lemon_lines(document["lemons"])


def _incident_lines(document: Mapping[str, Any]) -> Iterator[str]:
    totals = document["incident_totals"]
    yield f"Incidents: {incidents_text(totals)}"
    for job_id, share in document["degradation"].items():
        yield f"  job {job_id}: {share:.1%} of its time above its usual step time (P_deg)"


def incidents_text(totals: Mapping[str, Any]) -> str:
    """Return what incidents cost: work, recovery, idle GPUs and restarts."""

    def known(name: str, unit: str) -> str:
        value = totals[name]
        return "not known" if value is None else f"{number_text(value)} {unit}"

    return (
        f"{totals['incidents']}, each lost {known('mean_lost_minutes', 'min')} of work and took "
        f"{known('mean_recovery_minutes', 'min')} to recover from (means); GPUs idle while a fault "
        f"was diagnosed: {known('idle_gpu_hours_while_diagnosed', 'GPU-hours')} (a stall was seen "
        f"in {totals['incidents_with_known_stall']}); restarts: {totals['restarts']}"
    )


def scaling_text(scaling: Mapping[str, Any]) -> str:
    """Return how the rate of failures grows with the size of a job."""
    return (
        f"Rate grows as nodes^{scaling['slope']:.2f} [{scaling['low']:.2f}, "
        f"{scaling['high']:.2f}], p of 1/N {scaling['p_value']:.2g}"
    )


def optimum_text(expected: Mapping[str, Any]) -> str:
    """Return the checkpoint interval with the highest expected ETTR, or why there is none."""
    best = expected["optimal_checkpoint_minutes"]
    if best is None:
        return (
            "optimal interval: the shortest that can be written, for nothing halts (write_seconds)"
        )
    return (
        f"optimal interval: {number_text(best)} min, where writing halts the job for "
        f"{number_text(expected['write_minutes'])} min"
    )


def threshold_lines(lemons: Mapping[str, Any], most: int = 6) -> dict[str, str]:
    """Return by signal what share of the fleet its first thresholds would flag."""
    found: dict[str, list[str]] = {}
    for each in lemons["thresholds"]:
        of_signal = found.setdefault(each["signal"], [])
        if len(of_signal) < most:
            of_signal.append(f"≥ {number_text(each['least'])}: {each['share']:.1%}")
    return {signal: ", ".join(parts) for signal, parts in found.items()}


def lemon_lines(lemons: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines about lemons, from what ``lemons_document`` returns."""
    yield f"Lemons: {len(lemons['flagged'])} of {lemons['fleet']} nodes"
    for each in lemons["flagged"]:
        mean, low, high = each["faults_per_28_days"]
        yield (
            f"  {each['node']}: {each['episodes']} episodes, {mean:.2f} [{low:.2f}, {high:.2f}] "
            f"faults expected in 28 days, {each['ratio_to_fleet']:.1f} times the fleet's; "
            f"{', '.join(each['reasons']) or 'no signal above 95 % of the fleet'}"
        )
    yield f"  {worth_text(lemons)}"
    again = again_text(lemons)
    if again:
        yield f"  {again}"
    for node, left in lemons["probation_days_left"].items():
        yield f"  {node} is on probation for {left:.1f} more days: small jobs, or a burn-in"


def worth_text(lemons: Mapping[str, Any]) -> str:
    """Return how right a list of the first half of the window was about the second."""
    base, right, lift = lemons["base_share"], lemons["right_share"], lemons["lift"]
    named = lemons["named_by_first_half"]
    if base is None or right is None or lift is None:
        return (
            "What such a list is worth here is not known: the first half of the window would have "
            "named no node"
        )
    # Of a few nodes it is chance.
    times = f", at {lift:.1f} times the fleet's rate" if named >= _FEWEST_NAMED else ""
    return (
        f"A list of the first half of the window was right in {round(right * named)} of the "
        f"{named} nodes that it named (any node: {base:.0%}){times}"
    )


def again_text(lemons: Mapping[str, Any]) -> str:
    """Return how often nodes that returned to service failed again; empty: none returned."""
    again = lemons["fault_again_within_days"]
    if again is None:
        return ""
    shares = ", ".join(
        f"{'not known' if share is None else f'{share:.0%}'} within {days} d"
        for days, share in again.items()
    )
    return f"Of {lemons['returns']} returns to service, a fault came again: {shares}"


def _missing(document: Mapping[str, Any]) -> Iterator[str]:
    for each in document["missing"]:
        yield f"  missing: {each}"


def ettr_text(ettr: Mapping[str, Any]) -> str:
    """Return an ETTR with its range and its source; it is not known where nothing ran."""
    if ettr["value"] is None:
        return "not known"
    return (
        f"{ettr['value']:.3f} [{ettr['low']:.3f}, {ettr['high']:.3f}], checkpoints and restarts "
        f"{ettr['source']}"
    )


def rate_text(rate: Mapping[str, Any] | None) -> str:
    """Return a rate or a mean time with its interval; a bound where nothing was seen."""
    if rate is None:
        return "not known"
    low, high = number_text(rate["low"]), rate["high"]
    if rate["value"] is None:
        return (
            f"none seen: at least {low}"
            if high is None
            else f"none seen: below {number_text(high)}"
        )
    upper = "no bound" if high is None else number_text(high)
    spread = f", φ {rate['dispersion']:.1f}" if rate["dispersion"] > 1 else ""
    return f"{number_text(rate['value'])} [{low}, {upper}] ({rate['count']} seen{spread})"


def number_text(value: float) -> str:
    """Return a number with three digits, in full."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
