"""Which line is the root, and which follow from it."""

import pytest

from retry_cases import advised, observed, traceback

TIMEOUT = (
    "[E ProcessGroupNCCL.cpp:828] [Rank 1] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=9, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600123 ms\n"
)
CLOSED = "gpu-1:10:11 [0] NCCL WARN socketProgress: Connection closed by remote peer gpu-3<4242>\n"
REMOTE = (
    "torch.distributed.DistBackendError: NCCL error in: x.cpp:1, ncclRemoteError: A call failed "
    "possibly due to a network error or a remote process exiting prematurely.\n"
)
SIGTERM = (
    "W1124 10:00:00.000000 1 torch/distributed/elastic/multiprocessing/api.py:900] Sending process "
    "4242 closing signal SIGTERM\n"
)
CHILD = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
OOM = "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
ECC = "[rank3]: RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
XID79 = "NVRM: Xid (PCI:0000:9f:00): 79, pid='<unknown>', GPU has fallen off the bus.\n"
LAUNCH = "[rank2]: RuntimeError: CUDA error: unspecified launch failure\n"
LIMIT = (
    "slurmstepd: error: *** JOB 4711 ON gpu-1 CANCELLED AT 2026-03-01T10:20:30 DUE TO TIME LIMIT "
    "***\n"
)
FLUSHED = (
    "NCCL WARN NET/IB : Got completion from peer 10.0.0.3<4242> with status=5 opcode=0 len=0 "
    "vendor err 249\n"
)
EXCEEDED = FLUSHED.replace("status=5", "status=12").replace("249", "129")
GLOO = (
    "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer "
    "[10.0.0.3]:4242\n"
)
KILLED = "slurmstepd: error: Detected 1 oom_kill event in StepId=1.0.\n"
NODE = LIMIT.replace("TIME LIMIT", "NODE FAILURE")
REQUEUED = LIMIT.replace("TIME LIMIT", "JOB REQUEUE")
PREEMPTED = LIMIT.replace("TIME LIMIT", "PREEMPTION")
CRASH = "Fatal Python error: Segmentation fault\n"
STALE = "[rank1]: OSError: [Errno 116] Stale file handle: '/data'\n"
PLUGIN = (
    "gpu-1:10:11 [0] NCCL INFO NET/Plugin : Plugin load (libnccl-net.so) returned 2 : "
    "libnccl-net.so: cannot open shared object file: No such file or directory\n"
)
NOISE = "this may be caused by CUDA error: x\n"
SRUN = "srun: error: gpu-7: task 12: Exited with exit code 1\n"
KEY = traceback("KeyError: 'x'", "[rank3]: ")
OWN = traceback("RuntimeError: of its own", "[rank3]: ")
CUT = (
    traceback("FileNotFoundError: [Errno 2] No such file: 'a'", "[rank0]: ")
    + "[rank0]: \n[rank0]: During handling of the above exception, another exception occurred:\n"
    + "[rank0]: \n"
    + traceback("TypeError: 'NoneType' object is not iterable", "[rank0]: ")
)
STEPS = "".join(f"iteration {number}/ 500 | loss 1.0\n" for number in range(1, 9))

# What is in the logs, file by file, and the signature of the root.
CASES = [
    ("a symptom before the fault in one file", [TIMEOUT + KEY + CHILD], "program_error"),
    ("a symptom in an earlier file", [CLOSED + REMOTE, KEY], "program_error"),
    ("launcher's words first", [SIGTERM + CHILD + OOM], "cuda_out_of_memory"),
    ("scheduler's word last", [OOM + SRUN], "cuda_out_of_memory"),
    ("scheduler's word first", [SRUN, ECC], "cuda_ecc"),
    ("only symptoms: the earliest", [TIMEOUT + CLOSED + REMOTE], "collective_timeout"),
    ("only what follows", [SIGTERM + CHILD], "elastic_failure"),
    ("an exception of its own before symptoms", [CLOSED, OWN], "python_exception"),
    ("the first of a chain of exceptions", [CUT], "file_not_found"),
    ("the kernel's word beside the program's", [LAUNCH, XID79], "xid_fallen_off_bus"),
    ("a hang that its time limit ended", [TIMEOUT + LIMIT], "collective_timeout"),
    ("a hang that a requeue ended", [TIMEOUT + REQUEUED], "collective_timeout"),
    ("a time limit alone", [STEPS + LIMIT], "slurm_time_limit"),
    ("a fault that was got over", [KEY + STEPS + OOM], "cuda_out_of_memory"),
    ("a fault that was got over, and nothing else", [KEY + STEPS], ""),
    ("steps of others after a fault", [STEPS + KEY + "iteration 9/ 500 | loss\n"], "program_error"),
    ("noise and a sentence on causes", [NOISE + OOM], "cuda_out_of_memory"),
    ("a plugin that NCCL does without", [PLUGIN + TIMEOUT], "collective_timeout"),
    ("flushed transfers beside the exceeded one", [FLUSHED + EXCEEDED], "nccl_ib_retry_exceeded"),
    ("the OOM killer beside a lost peer", [GLOO + KILLED], "slurm_oom"),
    ("a node failure beside symptoms", [CLOSED + NODE], "slurm_node_failure"),
    ("preemption beside symptoms", [PREEMPTED + SIGTERM], "slurm_preemption"),
    ("a requeue beside symptoms", [REQUEUED + SIGTERM], "slurm_requeue"),
    ("a crash beside the launcher's word", [CRASH + SIGTERM + CHILD], "segmentation_fault"),
    ("a stale handle and what it broke", [STALE, TIMEOUT + REMOTE], "stale_file_handle"),
]


@pytest.mark.parametrize(("name", "texts", "root"), CASES, ids=[case[0] for case in CASES])
def test_the_root(name, texts, root):
    found = advised(*texts)
    assert found.signature == root
    if root and not found.signature.startswith(("elastic", "slurm_task")):
        assert root not in found.cascades


def test_times_decide_between_logs():
    late = "2026-03-01 10:30:00,000 " + OOM
    early = "2026-03-01 10:20:00,000 [rank1]: OSError: [Errno 28] No space left on device\n"
    assert advised(late, early).signature == "storage_full"
    assert advised(early, late).signature == "storage_full"


def test_a_symptom_that_came_long_before_is_the_root():
    hang = "2026-03-01 10:00:00,000 " + TIMEOUT
    later = "2026-03-01 11:00:00,000 [rank1]: OSError: [Errno 28] No space left on device\n"
    assert advised(later, hang).signature == "collective_timeout"


def test_the_peer_that_most_lost_is_told():
    lost = [
        f"gpu-{n}:1:2 [0] NCCL WARN Connection closed by remote peer gpu-3<1>\n" for n in (1, 2)
    ]
    notes = advised(*lost).notes
    assert any("gpu-3" in note for note in notes)


def test_a_path_that_does_not_answer_is_named_by_its_far_end():
    found = advised(EXCEEDED)
    assert (found.kind, found.isolate) == ("retry_elsewhere", ("10.0.0.3",))


def test_lines_are_counted():
    found = observed("one\ntwo\n" + KEY)
    assert [each.number for each in found.occurrences] == [5]
    assert observed("one\nweird thing crashed\n").unknown[0].number == 2
