# ruff: noqa: N801, N802, N818 - NVML's names
"""A driver of GPUs that are not there: INJECTED_GPUS of them, of which one may be in use."""

import os
from types import SimpleNamespace

COUNT = int(os.environ.get("INJECTED_GPUS", "0"))
DRIVER = os.environ.get("INJECTED_DRIVER", "550.54.15")
BUSY = os.environ.get("INJECTED_FAULT", "") == "busy GPU"
NVML_NVLINK_MAX_LINKS = 18
nvmlMemory_v2 = 2  # noqa: N816 - NVML's name


class NVMLError(Exception):
    """NVML's error."""


class NVMLError_LibraryNotFound(NVMLError):
    """There is no library."""


class NVMLError_DriverNotLoaded(NVMLError):
    """There is no driver."""


def nvmlInit():
    if not COUNT:
        raise NVMLError_DriverNotLoaded("Driver Not Loaded")


def nvmlShutdown():
    pass


def nvmlDeviceGetCount():
    return COUNT


def nvmlSystemGetDriverVersion():
    return DRIVER


def nvmlDeviceGetHandleByIndex(index):
    return index


def nvmlDeviceGetName(_gpu):
    return "NVIDIA H100 80GB HBM3"


def nvmlDeviceGetVbiosVersion(_gpu):
    return "96.00.74.00.01"


def nvmlDeviceGetMemoryInfo(_gpu, version=1):
    return SimpleNamespace(total=80 << 30, used=0)


def nvmlDeviceGetNvLinkState(_gpu, _link):
    return 1


def nvmlDeviceGetMaxPcieLinkWidth(_gpu):
    return 16


def nvmlDeviceGetMaxPcieLinkGeneration(_gpu):
    return 5


def nvmlDeviceGetComputeRunningProcesses(gpu):
    return [SimpleNamespace(pid=4711)] if BUSY and gpu == 1 else []
