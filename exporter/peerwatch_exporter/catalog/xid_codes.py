"""Every XID of the NVIDIA driver: what it is called, how serious it is, what a person does.

An XID is the number with which the driver reports a GPU error in the kernel log. The class says
what it asks for, in the order of urgency:

hardware
    The GPU or its node cannot be trusted: drain it now.
degraded
    It runs on with less than it had: drain it when the job ends, then reset.
watch
    Nothing at once: reset when idle, act if it repeats.
application
    Mostly the program's own mistake; suspect the GPU only if it repeats in other jobs.
ignore
    Says nothing about the GPU's health: advice, display, or a part that training never uses.

The sources disagree on some codes (63, 92, 94, 109, 121, 160 most of all), so the configuration
can set another class. On 144 to 150 and on 154 the line itself says more than the code.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, cast, get_args

if TYPE_CHECKING:
    from collections.abc import Mapping

Severity = Literal["hardware", "degraded", "watch", "application", "ignore"]
SEVERITIES: tuple[Severity, ...] = get_args(Severity)
# What does not pass by itself: the GPU must be reset or its node restarted.
LASTING_SEVERITIES: frozenset[Severity] = frozenset({"hardware", "degraded"})


@dataclass(frozen=True, slots=True)
class Xid:
    """What is known about one code.

    Parameters
    ----------
    code, mnemonic
        NVIDIA's number and name.
    domain
        Part of the node it comes from.
    severity
        Its class, as above.
    immediate_action
        What NVIDIA's catalogue says to do at once, in one word; ``none_given`` where it says
        nothing.
    advice
        What a person does, in a sentence.
    """

    code: int
    mnemonic: str
    domain: str
    severity: Severity
    immediate_action: str
    advice: str


# Code, NVIDIA's name, domain, class, NVIDIA's immediate action.
_TABLE = """
  1  FIFO_ERROR_FIFO_METHOD                            driver       ignore       contact_support
  2  FIFO_ERROR_SW_METHOD                              driver       ignore       contact_support
  3  FIFO_ERROR_UNK_METHOD                             driver       ignore       contact_support
  4  FIFO_ERROR_CHANNEL_BUSY                           driver       ignore       contact_support
  5  FIFO_ERROR_RUNOUT_OVERFLOW                        driver       ignore       contact_support
  6  FIFO_ERROR_PARSE_ERR                              driver       ignore       contact_support
  7  FIFO_ERROR_PTE_ERR                                driver       ignore       contact_support
  8  FIFO_ERROR_IDLE_TIMEOUT                           application  application  restart_app
  9  GR_ERROR_INSTANCE                                 driver       ignore       contact_support
 10  GR_ERROR_SINGLE_STEP                              driver       ignore       contact_support
 11  GR_ERROR_MISSING_HW                               application  application  restart_app
 12  GR_ERROR_SW_METHOD                                driver       ignore       contact_support
 13  GR_EXCEPTION                                      application  application  restart_app
 14  FAKE_ERROR                                        driver       ignore       ignore
 15  SCANLINE_TIMEOUT                                  display      ignore       contact_support
 16  VBLANK_CALLBACK_TIMEOUT                           driver       ignore       contact_support
 17  PARAMETER_ERROR                                   driver       ignore       contact_support
 18  BUS_MASTER_TIMEOUT_ERROR                          driver       ignore       contact_support
 19  DISP_MISSED_NOTIFIER                              display      ignore       contact_support
 20  MPEG_ERROR_SW_METHOD                              video        ignore       contact_support
 21  ME_ERROR_SW_METHOD                                video        ignore       contact_support
 22  VP_ERROR_SW_METHOD                                video        ignore       contact_support
 23  RC_LOGGING_ENABLED                                driver       ignore       contact_support
 24  GR_SEMAPHORE_TIMEOUT                              driver       ignore       contact_support
 25  GR_ILLEGAL_NOTIFY                                 application  application  restart_app
 26  FIFO_ERROR_FBISTATE_TIMEOUT                       driver       ignore       contact_support
 27  VP_ERROR                                          video        ignore       contact_support
 28  VP2_ERROR                                         video        ignore       contact_support
 29  BSP_ERROR                                         video        ignore       contact_support
 30  BAD_ADDR_ACCESS                                   driver       ignore       contact_support
 31  FIFO_ERROR_MMU_ERR_FLT                            application  application  restart_app
 32  PBDMA_ERROR                                       application  application  restart_app
 33  SEC_ERROR                                         video        ignore       contact_support
 34  MSVLD_ERROR                                       video        ignore       contact_support
 35  MSPDEC_ERROR                                      video        ignore       contact_support
 36  MSPPP_ERROR                                       video        ignore       contact_support
 37  FECS_ERR_UNIMP_FIRMWARE_METHOD                    driver       application  ignore
 38  FECS_ERR_WATCHDOG_TIMEOUT                         driver       application  ignore
 39  CE0_ERROR                                         copy_engine  application  restart_app
 40  CE1_ERROR                                         copy_engine  application  restart_app
 41  CE2_ERROR                                         copy_engine  application  restart_app
 42  VIC_ERROR                                         video        ignore       contact_support
 43  RESETCHANNEL_VERIF_ERROR                          application  application  ignore
 44  GR_FAULT_DURING_CTXSW                             application  application  ignore
 45  PREEMPTIVE_REMOVAL                                application  application  workflow
 46  GPU_TIMEOUT_ERROR                                 driver       hardware     reset_gpu
 47  NVENC0_ERROR                                      video        ignore       contact_support
 48  GPU_ECC_DBE                                       memory       hardware     workflow
 49  SILENT_RUNNING_CONSTANT_LEVEL_SET_BY_REGISTRY     power        ignore       contact_support
 50  SILENT_RUNNING_LEVEL_TRANSITION_DUE_TO_RC_ERROR   power        ignore       contact_support
 51  SILENT_RUNNING_STRESS_TEST_FAILURE                power        ignore       contact_support
 52  SILENT_RUNNING_LEVEL_TRANS_DUE_TO_TEMP_RISE       power        ignore       contact_support
 53  SILENT_RUNNING_TEMP_REDUCED_CLOCKING              power        ignore       contact_support
 54  SILENT_RUNNING_PWR_REDUCED_CLOCKING               power        degraded     check_mechanicals
 55  SILENT_RUNNING_TEMPERATURE_READ_ERROR             power        ignore       contact_support
 56  DISPLAY_CHANNEL_EXCEPTION                         display      ignore       contact_support
 57  FB_LINK_TRAINING_FAILURE_ERROR                    memory       ignore       contact_support
 58  FB_MEMORY_ERROR                                   memory       ignore       contact_support
 59  PMU_ERROR                                         firmware     ignore       contact_support
 60  SEC2_ERROR                                        video        ignore       restart_app
 61  PMU_BREAKPOINT                                    firmware     hardware     contact_support
 62  PMU_HALT_ERROR                                    firmware     hardware     reset_gpu
 63  INFOROM_DRAM_RETIREMENT_EVENT                     memory       watch        ignore
 64  INFOROM_DRAM_RETIREMENT_FAILURE                   memory       hardware     reset_gpu
 65  NVENC1_ERROR                                      video        ignore       contact_support
 66  FECS_ERR_REG_ACCESS_VIOLATION                     driver       application  ignore
 67  FECS_ERR_VERIF_VIOLATION                          driver       application  ignore
 68  NVDEC0_ERROR                                      video        application  restart_app
 69  GR_CLASS_ERROR                                    application  application  restart_app
 70  CE3_ERROR                                         copy_engine  application  restart_app
 71  CE4_ERROR                                         copy_engine  application  restart_app
 72  CE5_ERROR                                         copy_engine  application  restart_app
 73  NVENC2_ERROR                                      video        ignore       contact_support
 74  NVLINK_ERROR                                      nvlink       hardware     workflow
 75  CE6_ERROR                                         copy_engine  application  restart_app
 76  CE7_ERROR                                         copy_engine  application  restart_app
 77  CE8_ERROR                                         copy_engine  application  restart_app
 78  VGPU_START_ERROR                                  driver       ignore       update_software
 79  GPU_HAS_FALLEN_OFF_THE_BUS                        pcie         hardware     restart_node
 80  PBDMA_PUSHBUFFER_CRC_MISMATCH                     application  application  restart_app
 81  VGA_SUBSYSTEM_ERROR                               display      ignore       contact_support
 82  NVJPG0_ERROR                                      video        application  restart_app
 83  NVDEC1_ERROR                                      video        application  restart_app
 84  NVDEC2_ERROR                                      video        application  restart_app
 85  CE9_ERROR                                         copy_engine  application  restart_app
 86  OFA0_ERROR                                        video        application  restart_app
 87  NVTELEMETRY_DRIVER_REPORT                         driver       ignore       contact_support
 88  NVDEC3_ERROR                                      video        application  restart_app
 89  NVDEC4_ERROR                                      video        application  restart_app
 90  LTC_ERROR                                         memory       ignore       contact_support
 91  RESERVED_XID                                      driver       ignore       contact_support
 92  EXCESSIVE_SBE_INTERRUPTS                          memory       degraded     ignore
 93  INFOROM_ERASE_LIMIT_EXCEEDED                      inforom      watch        ignore
 94  CONTAINED_ERROR                                   memory       watch        restart_app
 95  UNCONTAINED_ERROR                                 memory       hardware     reset_gpu
 96  NVDEC5_ERROR                                      video        application  restart_app
 97  NVDEC6_ERROR                                      video        application  restart_app
 98  NVDEC7_ERROR                                      video        application  restart_app
 99  NVJPG1_ERROR                                      video        application  restart_app
100  NVJPG2_ERROR                                      video        application  restart_app
101  NVJPG3_ERROR                                      video        application  restart_app
102  NVJPG4_ERROR                                      video        application  restart_app
103  NVJPG5_ERROR                                      video        application  restart_app
104  NVJPG6_ERROR                                      video        application  restart_app
105  NVJPG7_ERROR                                      video        application  restart_app
106  SMBPBI_TEST_MESSAGE                               driver       ignore       ignore
107  SMBPBI_TEST_MESSAGE_SILENT                        driver       ignore       ignore
108  NVLINK_REMOTE_TRANSLATION_ERROR                   nvlink       ignore       ignore
109  CTXSW_TIMEOUT_ERROR                               application  watch        reset_gpu
110  SEC_FAULT_ERROR                                   firmware     degraded     reset_gpu
111  BUNDLE_ERROR_EVENT                                driver       ignore       contact_support
112  DISP_SUPERVISOR_ERROR                             display      ignore       contact_support
113  DP_LT_FAILURE                                     display      ignore       contact_support
114  HEAD_RG_UNDERFLOW                                 display      ignore       contact_support
115  CORE_CHANNEL_REGS                                 display      ignore       contact_support
116  WINDOW_CHANNEL_REGS                               display      ignore       contact_support
117  CURSOR_CHANNEL_REGS                               display      ignore       contact_support
118  HEAD_REGS                                         display      ignore       contact_support
119  GSP_RPC_TIMEOUT                                   firmware     hardware     reset_gpu
120  GSP_ERROR                                         firmware     hardware     reset_gpu
121  C2C_ERROR                                         nvlink       watch        ignore
122  SPI_PMU_RPC_READ_FAIL                             firmware     degraded     contact_support
123  SPI_PMU_RPC_WRITE_FAIL                            firmware     degraded     contact_support
124  SPI_PMU_RPC_ERASE_FAIL                            firmware     ignore       contact_support
125  INFOROM_FS_ERROR                                  inforom      watch        contact_support
126  CE10_ERROR                                        copy_engine  application  restart_app
127  CE11_ERROR                                        copy_engine  application  restart_app
128  CE12_ERROR                                        copy_engine  application  restart_app
129  CE13_ERROR                                        copy_engine  application  restart_app
130  CE14_ERROR                                        copy_engine  application  restart_app
131  CE15_ERROR                                        copy_engine  application  restart_app
132  CE16_ERROR                                        copy_engine  application  restart_app
133  CE17_ERROR                                        copy_engine  application  restart_app
134  CE18_ERROR                                        copy_engine  application  restart_app
135  CE19_ERROR                                        copy_engine  application  restart_app
136  ALI_TRAINING_FAIL                                 nvlink       degraded     reset_gpu
137  NVLINK_PRIV_ERR                                   nvlink       application  ignore
138  DLA_ERROR                                         driver       ignore       contact_support
139  OFA1_ERROR                                        video        application  restart_app
140  UNRECOVERABLE_ECC_ERROR_ESCAPE                    memory       hardware     reset_gpu
141  FAST_PATH_ERROR                                   driver       application  ignore
142  NVENC3_ERROR                                      video        ignore       contact_support
143  GPU_INIT_ERROR                                    firmware     hardware     reset_gpu
144  NVLINK_SAW_ERROR                                  nvlink       degraded     workflow
145  NVLINK_RLW_ERROR                                  nvlink       degraded     workflow
146  NVLINK_TLW_ERROR                                  nvlink       degraded     workflow
147  NVLINK_TREX_ERROR                                 nvlink       degraded     workflow
148  NVLINK_NVLPW_CTRL_ERROR                           nvlink       degraded     workflow
149  NVLINK_NETIR_ERROR                                nvlink       degraded     workflow
150  NVLINK_MSE_ERROR                                  nvlink       degraded     workflow
151  KEY_ROTATION_ERROR                                firmware     ignore       restart_vm
152  DLA_SMMU_ERROR                                    driver       ignore       ignore
153  DLA_TIMEOUT                                       driver       ignore       ignore
154  GPU_RECOVERY_ACTION_CHANGED                       driver       ignore       follow_line
155  NVLINK_SW_DEFINED_ERROR                           nvlink       degraded     reset_gpu
156  RESOURCE_RETIREMENT_EVENT                         memory       degraded     reset_gpu
157  RESOURCE_RETIREMENT_FAILURE                       memory       watch        ignore
158  GPU_FATAL_TIMEOUT                                 firmware     hardware     reset_gpu
159  CHI_NON_DATA_ERROR                                driver       application  check_uvm
160  CHANNEL_RETIREMENT_EVENT                          channel      watch        ignore
161  CHANNEL_RETIREMENT_FAILURE                        channel      watch        ignore
162  PSHC_REENGAGED                                    power        ignore       none_given
163  PSHC_DISENGAGED                                   power        ignore       none_given
164  PSHC_LOW_LIFETIME                                 power        ignore       none_given
165  PSHC_ZERO_LIFETIME                                power        ignore       none_given
166  NVLINK_SECURE_CRYPTO_ERR                          nvlink       ignore       none_given
167  PCIE_FATAL_TIMEOUT                                pcie         degraded     none_given
168  REDUCED_GPU_MEMORY_CAPACITY                       memory       watch        none_given
169  SEC2_HALT_ERROR                                   firmware     degraded     none_given
170  NVLINK_SECURE_OTHER                               nvlink       ignore       none_given
171  UNCORRECTABLE_DRAM_ERROR                          memory       degraded     none_given
172  UNCORRECTABLE_SRAM_ERROR                          memory       degraded     none_given
173  C2C_FATAL_LINK_FAILURE                            nvlink       watch        none_given
174  RESETCHANNEL_KILL_PROCESS_SILENT                  driver       watch        none_given
175  MEMORY_SUBSYSTEM_ERROR                            memory       watch        none_given
176  PCIE_CORRECTABLE_ERROR_FAULT                      pcie         watch        none_given
"""

CLASS_ADVICE: Mapping[Severity, str] = MappingProxyType(
    {
        "hardware": "Drain now and reset the GPU; replace it if the error comes back.",
        "degraded": "Drain when the job ends, then reset the GPU.",
        "watch": "Reset the GPU when it is idle; drain it if the error repeats.",
        "application": "Check the program first; suspect the GPU if other jobs on it fail too.",
        "ignore": "Nothing by itself; check what else was logged at that time.",
    }
)
_LINK_ADVICE = "Drain now if the line says Fatal, else when the job ends; check both link ends."
_ADVICE: Mapping[int, str] = MappingProxyType(
    {
        43: "Look at the XID 13 or 31 before it; alone, check the program.",
        45: "Look at the XID before it; alone, a process was killed.",
        48: "Drain now and reset the GPU; XID 64 or a repeat means replacing it.",
        54: "Drain when the job ends and check the GPU's power cables.",
        63: "Reset the GPU when it is idle, so that the spare memory row takes over.",
        64: "Drain now and reset the GPU; no spare row took over: expect to replace it.",
        74: "Drain now and reset the GPU; check both link ends and the switches' SXIDs.",
        78: "Install driver and vGPU software that match.",
        79: "Drain now and restart the node; check the GPU's power cable and its slot.",
        92: "Drain when the job ends; replace the GPU if corrected errors go on.",
        94: "Restart the job; reset the GPU when it is idle. Only this job lost data.",
        95: "Drain now and reset the GPU; every process on it may have wrong data.",
        109: "Restart the job; drain the GPU if a second job on it fails like this.",
        119: "Drain now and reset the GPU; restart the node if the reset fails.",
        120: "Drain now and reset the GPU; restart the node if the reset fails.",
        136: "Drain when the job ends, then reset; check the link's signal if it repeats.",
        **dict.fromkeys(range(144, 151), _LINK_ADVICE),
        154: "Do what the line asks for: gpu_xid_recovery_action_info repeats it.",
        156: "Drain when the job ends, then reset: the retired part is replaced by a spare.",
    }
)


def _parse(table: str) -> Mapping[int, Xid]:
    xids = {}
    for line in table.split("\n"):
        if line:
            number, mnemonic, domain, word, action = line.split()
            severity = cast("Severity", word)
            advice = _ADVICE.get(int(number), CLASS_ADVICE[severity])
            xids[int(number)] = Xid(int(number), mnemonic, domain, severity, action, advice)
    return MappingProxyType(xids)


XIDS: Mapping[int, Xid] = _parse(_TABLE)
# Memory errors the GPU survives: watched only, but the first one must be seen to rise from 0.
_ALSO_CRITICAL = frozenset({63, 94})

_NVLINK_CODES = range(144, 151)
_NVLINK = re.compile(r"\b[A-Z][A-Z0-9_]+\s+(Nonfatal|Fatal)\s+XC\d")
_RECOVERY = re.compile(
    r"recovery action changed from 0x[0-9a-fA-F]{1,8} .*?to 0x([0-9a-fA-F]{1,8})\b"
)
# The driver's numbers; its words for them changed over time ("Node Reboot Required", "OS Reboot").
_RECOVERY_ACTIONS: tuple[tuple[str, Severity], ...] = (
    ("none", "ignore"),
    ("gpu_reset", "hardware"),
    ("node_reboot", "hardware"),
    ("drain_p2p", "degraded"),
    ("drain_and_reset", "degraded"),
    ("recover_imex_domain", "degraded"),
    ("bus_reset", "hardware"),
    ("system_reboot", "hardware"),
)


def describe(code: int, overrides: Mapping[int, Severity]) -> Xid:
    """Return what is known about a code, with the class that the configuration gives it.

    A code that is not in the table is one to watch.
    """
    known = XIDS.get(code)
    if known is None:
        severity = overrides.get(code, "watch")
        return Xid(code, "UNKNOWN", "unknown", severity, "none_given", CLASS_ADVICE[severity])
    severity = overrides.get(code, known.severity)
    if severity == known.severity:
        return known
    advice = CLASS_ADVICE[severity]
    return Xid(code, known.mnemonic, known.domain, severity, known.immediate_action, advice)


def severity_of(code: int, text: str, overrides: Mapping[int, Severity]) -> Severity:
    """Return the class of one log line: the configured one, else the line's own, else the code's.

    A fatal NVLink line (144 to 150) is hardware; 154 is as serious as the recovery it asks for.
    """
    if code in overrides:
        return overrides[code]
    if code in _NVLINK_CODES and (match := _NVLINK.search(text)) and match[1] == "Fatal":
        return "hardware"
    if code == 154 and (number := _recovery_number(text)) is not None:
        return _RECOVERY_ACTIONS[number][1] if number < len(_RECOVERY_ACTIONS) else "watch"
    return describe(code, overrides).severity


def recovery_action(text: str) -> str | None:
    """Return the recovery that a line of XID 154 asks for now, or None if it names none."""
    number = _recovery_number(text)
    if number is None:
        return None
    return _RECOVERY_ACTIONS[number][0] if number < len(_RECOVERY_ACTIONS) else "unknown"


def critical_codes(overrides: Mapping[int, Severity]) -> frozenset[int]:
    """Return the codes published as 0 from the start: all of class hardware, and 63 and 94."""
    codes = XIDS.keys() | overrides.keys()
    hardware = {code for code in codes if describe(code, overrides).severity == "hardware"}
    return frozenset(hardware | _ALSO_CRITICAL)


def _recovery_number(text: str) -> int | None:
    match = _RECOVERY.search(text)
    return None if match is None else int(match[1], 16)
