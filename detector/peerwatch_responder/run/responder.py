"""The responder: takes alerts, decides again and again, and does what is decided."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, TypeVar

from peerwatch_responder.action import UnknownError
from peerwatch_responder.audit.journal import JournalError
from peerwatch_responder.policy.decide import decide, rule_for, takes_out
from peerwatch_responder.policy.limit_guards import most_at_once
from peerwatch_responder.policy.state import UNDER_WAY, Surroundings
from peerwatch_responder.run import servers
from peerwatch_responder.run.execute import Execution, Patience, StoppedError, target_of
from peerwatch_responder.run.orders import OrderError, put_back
from peerwatch_responder.run.probation import due, probe
from peerwatch_responder.run.released import out as responses_out
from peerwatch_responder.run.released import released
from peerwatch_responder.run.restarts import Restarts
from peerwatch_responder.run.undo import undo
from peerwatch_responder.server import ServerError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from peerwatch_responder.action import Action
    from peerwatch_responder.alert import Alert
    from peerwatch_responder.cluster import Owner, Place
    from peerwatch_responder.policy.plan import Decision, Plan
    from peerwatch_responder.policy.state import Response, State, Status
    from peerwatch_responder.run.books import Books
    from peerwatch_responder.settings.load import Settings
    from peerwatch_responder.settings.policy import ProbationConfig

    _Known = tuple[int | None, Mapping[Place, Owner], frozenset[Place]]

_LOG = logging.getLogger(__name__)

_Answer = TypeVar("_Answer")

# The thread that checks nodes; responses' are named by their keys.
_PROBATION = "probation"


class Responder:
    """One responder over its books.

    Parameters
    ----------
    settings
        The settings, and what they name: what runs the jobs, and the actions.
    books
        What was done so far.
    clock
        Unix time in seconds.

    Attributes
    ----------
    config
        The settings.
    most_at_once
        How many nodes may be out at once, by the newest plan.
    plan
        The newest one; None before the first.
    decisions
        How often alerts were decided upon, by verdict and reason; each change of an alert counts.
    unknown
        What could not be learnt for the newest plan, by whom.
    restarts
        Who is asked before a job is started again, and what was advised.
    """

    def __init__(
        self,
        settings: Settings,
        books: Books,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
        self.config = settings.config
        self._books = books
        self._clock = clock
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._threads: dict[str, threading.Thread] = {}
        self._last: dict[str, tuple[str, str]] = {}
        self.most_at_once = 1
        self.plan: Plan | None = None
        self.decisions: Counter[tuple[str, str]] = Counter()
        self.unknown: dict[str, str] = {}
        self.restarts = Restarts(settings.restart, settings.advisor)

    @property
    def books(self) -> Books:
        """What was done so far."""
        return self._books

    @property
    def actions(self) -> Mapping[str, Action]:
        """All actions by name."""
        return self._settings.actions

    def wake(self) -> None:
        """Decide anew now."""
        self._wake.set()

    @property
    def state(self) -> State:
        """What is known now."""
        return self._books.state

    def receive(self, alerts: tuple[Alert, ...]) -> None:
        """Write down what is new about alerts that a rule matches, and have it decided.

        Alertmanagers may send in any order: of one alert the later start counts, and of one start
        its end.

        Raises
        ------
        JournalError
            If it cannot be written; the sender must try again.
        """
        for alert in alerts:
            if rule_for(alert, self.config.policy) is None:
                continue
            known = self.state.alerts.get(alert.fingerprint)
            if known is None or _order(known) < _order(alert):
                self._books.write("received", **_fields(alert))
        self.wake()

    def run(self) -> None:
        """Decide and act until ``stop``; first go on with what was left undone."""
        self.go_on()
        while not self._stop.is_set():
            try:
                self.cycle()
            except Exception:
                # Nothing is done that is not decided; the next cycle decides anew.
                _LOG.exception("cycle failed")
            self._wake.wait(self.config.interval_seconds)
            self._wake.clear()

    def go_on(self) -> None:
        """Go on with the responses that a crash or an end has left under way."""
        for response in self.state.responses.values():
            if response.status in UNDER_WAY:
                self._begin(response)

    def stop(self) -> None:
        """End; responses under way go on when it runs again."""
        self._stop.set()
        self._wake.set()

    def join(self, seconds: float) -> None:
        """Wait for the responses under way to reach a step's end."""
        end = time.monotonic() + seconds
        for thread in tuple(self._threads.values()):
            thread.join(max(0.0, end - time.monotonic()))

    def cycle(self) -> Plan:
        """Decide once and begin what is to be done."""
        state = self.state
        alerts = tuple(state.alerts.values())
        surroundings = self._surroundings(alerts, state)
        state = self._with_released(state, surroundings)
        plan = decide(alerts, state, surroundings, self.config.policy, self._clock())
        for want in plan.wants:
            self._books.write("wanted", key=want.key, cluster=want.cluster, node=want.node)
        if plan.trips is not None:
            _LOG.error("breaker tripped detail=%s", plan.trips)
            self._books.write("tripped", why=plan.trips)
        for decision in plan.decisions:
            self._count(decision)
            if decision.verdict == "refuse":
                self._write_decision("refused", decision)
            elif decision.verdict == "act":
                self._write_decision("planned", decision)
                self._begin(self.state.responses[decision.key])
        self.plan = plan
        self._begin_probation(state)
        return plan

    def _begin_probation(self, state: State) -> None:
        """Check one node that is out and due, if none is being checked."""
        probation = self.config.policy.probation
        if probation is None or self.config.dry_run or self._is_alive(_PROBATION):
            return
        response = next(due(state, probation, self._clock()), None)
        if response is not None:
            self._start(_PROBATION, lambda: self._probe(response, probation))

    def _probe(self, response: Response, probation: ProbationConfig) -> None:
        try:
            result, text = probe(response, self._books, self.actions[probation.check])
            _LOG.info(
                "checked key=%s node=%s result=%s detail=%s",
                *(response.key, response.node, result, text),
            )
            # A person may have put it back meanwhile, or paused all.
            current = self.state.responses[response.key]
            if current.is_out and current.passes >= probation.passes and self.state.paused is None:
                put_back(current, self._books, self.actions)
                _LOG.info("put back key=%s node=%s", response.key, response.node)
        except OrderError as error:
            _LOG.warning("not put back key=%s detail=%s", response.key, str(error))
        except Exception:
            _LOG.exception("probation broken off key=%s", response.key)

    def _surroundings(self, alerts: Collection[Alert], state: State) -> Surroundings:
        config = self.config
        self.unknown = {}
        out = {(each.cluster, each.node) for each in responses_out(state, self._settings.take_out)}
        places = {(each.cluster, each.node) for each in alerts if each.is_firing and each.node}
        firing = advice = None
        # Alerts are kept for days after their end; of those nothing is to be asked.
        fires = any(each.is_firing for each in alerts)
        if fires and config.alertmanager is not None:
            server = config.alertmanager
            firing = self._learn("alertmanager", lambda: servers.firing(server))
        if fires and config.prometheus is not None:
            asked = config.prometheus
            advice = self._learn("prometheus", lambda: servers.advice(asked))
        known: _Known = None, {}, frozenset()
        if fires or out:
            known = self._learn("cluster", lambda: self._ask_cluster(places | out)) or known
            self.most_at_once = most_at_once(known[0], config.policy.budget)
        size, owners, protected = known
        return Surroundings(
            firing=firing,
            nodes=size,
            owners=owners,
            protected=protected,
            take_out=self._settings.take_out,
            advice=advice or {},
        )

    def _ask_cluster(self, places: Collection[Place]) -> _Known:
        cluster = self._settings.cluster
        return cluster.size(), cluster.owners(places), cluster.protected()

    def _with_released(self, state: State, surroundings: Surroundings) -> State:
        """Write down which nodes a person has put back; return what is known then."""
        if self.config.dry_run:
            # What would have been taken out is in use, of course.
            return state
        places = released(state, self._settings.take_out, surroundings.owners)
        # An undo may have come between.
        places &= released(self.state, self._settings.take_out, surroundings.owners)
        for cluster, node in sorted(places):
            self._books.write("released", cluster=cluster, node=node)
            _LOG.info("released by a person cluster=%s node=%s", cluster, node)
        return self.state if places else state

    def _learn(self, whom: str, ask: Callable[[], _Answer]) -> _Answer | None:
        try:
            return ask()
        except (ServerError, UnknownError) as error:
            self.unknown[whom] = str(error)
            _LOG.warning("not learnt from=%s detail=%s", whom, str(error))
            return None

    def _count(self, decision: Decision) -> None:
        outcome = decision.verdict, decision.reason
        key = decision.key or decision.alert.fingerprint
        if self._last.get(key) != outcome:
            self._last[key] = outcome
            self.decisions[outcome] += 1
            _LOG.info(
                "decided verdict=%s reason=%s key=%s node=%s job_id=%s detail=%s",
                *(*outcome, key, decision.alert.node, decision.alert.job_id, decision.text),
            )
        if len(self._last) > 10_000:
            self._last.clear()

    def _write_decision(self, kind: Any, decision: Decision) -> None:  # noqa: ANN401 - a kind
        alert = decision.alert
        self._books.write(
            kind,
            key=decision.key,
            cluster=alert.cluster,
            node=alert.node,
            job_id=alert.job_id,
            actions=list(decision.actions),
            fingerprint=alert.fingerprint,
            starts_at=alert.starts_at,
            labels=dict(alert.labels),
            takes_out=takes_out(decision.actions, self._settings.take_out),
            reason=decision.reason,
            text=decision.text,
        )

    def _begin(self, response: Response) -> None:
        self._start(response.key, lambda: self._execute(response))

    def _is_alive(self, name: str) -> bool:
        thread = self._threads.get(name)
        return thread is not None and thread.is_alive()

    def _start(self, name: str, run: Callable[[], None]) -> None:
        thread = threading.Thread(target=run, name=f"response-{name}", daemon=True)
        self._threads = {key: each for key, each in self._threads.items() if each.is_alive()}
        self._threads[name] = thread
        thread.start()

    def _put_back(self, key: str, text: str) -> tuple[Status, str]:
        """Undo what was done before a check that the node has passed."""
        response = self.state.responses[key]
        undone = list(undo(response, target_of(response), self.actions))
        text = "; ".join((text, *(each for each, _ in undone)))
        return ("passed" if all(is_undone for _, is_undone in undone) else "stuck"), text

    def _execute(self, response: Response) -> None:
        execution = Execution(
            response,
            target_of(response),
            self._settings.actions,
            lambda **data: self._books.write("step", **data),
            Patience(self.config.step_seconds, self._stop.wait),
            dry_run=self.config.dry_run,
            restarts=self.restarts,
        )
        try:
            status, text = execution.run()
            if status == "passed" and not self.config.dry_run:
                status, text = self._put_back(response.key, text)
        except StoppedError:
            return
        except JournalError:
            # What was done is looked at after a restart.
            _LOG.exception("response broken off key=%s", response.key)
            return
        except Exception as error:
            # A fault of the program: whether its step acted only a person can find out.
            _LOG.exception("response broken off key=%s", response.key)
            status, text = "stuck", f"It broke off: {error.__class__.__name__}; see the log."
        try:
            self._books.write("ended", key=response.key, status=status, text=text)
        except JournalError:
            _LOG.exception("end not written key=%s status=%s", response.key, status)
            return
        _LOG.info("ended key=%s status=%s detail=%s", response.key, status, text)


def _order(alert: Alert) -> tuple[float, float]:
    return alert.starts_at, alert.ends_at or 0.0


def _fields(alert: Alert) -> dict[str, object]:
    return {
        "labels": dict(alert.labels),
        "annotations": dict(alert.annotations),
        "fingerprint": alert.fingerprint,
        "starts_at": alert.starts_at,
        "ends_at": alert.ends_at,
    }
