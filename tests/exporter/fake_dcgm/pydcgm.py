"""Stands in for DCGM's Python bindings: the part of their shape that the exporter uses.

The file named by FAKE_DCGM says what the host engine answers: ``gpus`` ({gpu id: uuid}), ``values``
({gpu id: {field id: value, or null for a blank one}}), ``age`` of the values in seconds,
``refused`` (field ids that cannot be watched), and at which call it fails: ``connect_error``,
``watch_error``, ``read_error`` (DCGM's number), ``hang``, ``crash``.
"""

# ruff: noqa: N802, N803 - the names are those of DCGM's bindings

import json
import os
import time
from pathlib import Path

# DCGM's bindings and library may print.
print("pydcgm: loaded")


class DCGMError(Exception):
    """Carries DCGM's number, as dcgm_structs.DCGMError does."""

    def __init__(self, value):
        super().__init__(f"DCGM Error with code {value}")
        self.value = value


def _engine():
    return json.loads(Path(os.environ["FAKE_DCGM"]).read_text())


def _fail(engine, key):
    if engine.get(key):
        raise DCGMError(engine[key])


class _Struct:
    def __init__(self, **fields):
        self.__dict__.update(fields)


class DcgmHandle:
    """A connection."""

    def __init__(self, handle=None, ipAddress=None, unixSocketPath=None, timeoutMs=0):
        assert (ipAddress is None) != (unixSocketPath is None), "this would start an engine"
        _fail(_engine(), "connect_error")

    def GetSystem(self):
        return _System()


class _System:
    def __init__(self):
        self.discovery = self

    def GetDefaultGroup(self):
        return _Group()

    def GetGpuAttributes(self, gpu):
        return _Struct(identifiers=_Struct(uuid=_engine()["gpus"][str(gpu)]))


class DcgmFieldGroup:
    """Fields by number."""

    def __init__(self, handle, name="", fieldIds=None):
        self.name, self.fieldIds = name, fieldIds
        if set(fieldIds) & set(_engine().get("refused", ())):
            raise DCGMError(-12)


class _Group:
    def __init__(self):
        self.samples = self

    def GetGpuIds(self):
        return [int(gpu) for gpu in _engine()["gpus"]]

    def WatchFields(self, fieldGroup, updateFreq, maxKeepAge, maxKeepSamples):
        assert updateFreq >= 100_000, "less than DCGM takes"
        _fail(_engine(), "watch_error")

    def GetLatest(self, fieldGroup):
        engine = _engine()
        _fail(engine, "read_error")
        if engine.get("crash"):
            os.abort()
        while engine.get("hang"):
            time.sleep(1)
        stamp = (time.time() - engine.get("age", 0)) * 1e6
        return _Struct(
            values={
                int(gpu): {
                    int(field): [_Struct(value=value, isBlank=value is None, ts=stamp)]
                    for field, value in values.items()
                    if int(field) in fieldGroup.fieldIds
                }
                for gpu, values in engine["values"].items()
            }
        )
