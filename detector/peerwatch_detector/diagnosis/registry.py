"""The diagnosers of every job. To add one: write its file, and its class here."""

from __future__ import annotations

from peerwatch_detector.diagnosis.collectives.hang.diagnoser import HangDiagnoser
from peerwatch_detector.diagnosis.collectives.slowness.communication_diagnoser import (
    CommunicationDiagnoser,
)
from peerwatch_detector.diagnosis.collectives.slowness.past_diagnoser import PastDiagnoser
from peerwatch_detector.diagnosis.collectives.slowness.straggler_diagnoser import StragglerDiagnoser
from peerwatch_detector.diagnosis.diagnoser import Diagnoser
from peerwatch_detector.diagnosis.processes.process_diagnoser import ProcessDiagnoser
from peerwatch_detector.diagnosis.root.fatal_lines import FatalLineDiagnoser

DIAGNOSERS: tuple[type[Diagnoser], ...] = (
    FatalLineDiagnoser,
    ProcessDiagnoser,
    HangDiagnoser,
    StragglerDiagnoser,
    CommunicationDiagnoser,
    PastDiagnoser,
)
