"""The diagnosers of every job. To add one: write its file, and its class here."""

from __future__ import annotations

from peerwatch_detector.diagnosis.collectives.communication_diagnoser import CommunicationDiagnoser
from peerwatch_detector.diagnosis.collectives.hang_diagnoser import HangDiagnoser
from peerwatch_detector.diagnosis.collectives.straggler_diagnoser import StragglerDiagnoser
from peerwatch_detector.diagnosis.diagnoser import Diagnoser
from peerwatch_detector.diagnosis.processes.process_diagnoser import ProcessDiagnoser

DIAGNOSERS: tuple[type[Diagnoser], ...] = (
    ProcessDiagnoser,
    HangDiagnoser,
    StragglerDiagnoser,
    CommunicationDiagnoser,
)
