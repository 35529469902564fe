"""What Slurm and Kubernetes say of a job, and where its logs are."""

import json

import pytest

from peerwatch_responder.action import UnknownError
from peerwatch_responder.advice import Job
from peerwatch_responder.retry.reading import cluster_jobs
from peerwatch_responder.retry.reading.bounded import TOTAL_BYTES
from peerwatch_responder.retry.reading.cluster_jobs import job_of_cluster, slurm_commands
from peerwatch_responder.retry.reading.files import LogError
from peerwatch_responder.retry.reading.pod import pod_of_api, pod_of_folder, split_name
from peerwatch_responder.retry.reading.slurm_job import (
    accounted_job,
    expanded,
    fields_in,
    job_in,
    slurm_job,
)
from peerwatch_responder.settings.config import ResponderConfig

SHOWN = (
    "JobId=4711 JobName=a name with = in it UserId=u(1000) JobState=FAILED Reason=NonZeroExitCode "
    "Dependency=(null) Requeue=1 Restarts=2 BatchFlag=1 ExitCode=0:9 NodeList=gpu-1 NumNodes=1 "
    "Command=/home/u/job.sh --out=x WorkDir=/home/u StdErr=/home/u/my err StdIn=/dev/null "
    "StdOut=/home/u/slurm-4711.out Power="
)


class Slurm:
    def __init__(self, **answers):
        self.answers = answers

    def ask(self, program, *arguments):
        answer = self.answers.get(program)
        if answer is None:
            raise UnknownError(f"{program} ends with status 1: Invalid job id specified")
        return answer


def test_the_controllers_word():
    job = slurm_job(Slurm(scontrol=SHOWN + "\n"), "4711")
    facts = job.facts
    assert (facts.state, facts.exit_code, facts.nodes) == ("FAILED", 137, ("gpu-1",))
    assert (facts.job, facts.attempt) == ("4711", "2")
    assert [str(path) for path in job.outputs] == ["/home/u/slurm-4711.out", "/home/u/my err"]
    assert facts.failed
    assert "JobState=FAILED" in facts.text


def test_what_the_controller_does_not_expand():
    (output,) = job_in("JobState=FAILED StdOut=/home/u/4711.%J.out", "4711_3").outputs
    assert str(output) == "/home/u/4711.4711.out"


def test_names_with_spaces():
    fields = fields_in(SHOWN)
    assert fields["StdErr"] == "/home/u/my err"
    assert fields["Power"] == ""


ROW = "\x1f".join(
    ("4713", "4711_3", "NODE_FAIL", "1:0", "gpu-[1-2]", "/work", "train", "u", "{submit}")
)
SUBMITTED = [
    ("sbatch job.sh", ["/work/slurm-4711_3.out"]),
    ("sbatch -o logs/%x-%j.log job.sh", ["/work/logs/train-4713.log"]),
    ("sbatch --output=/o/%u/%A_%a --error /e/%6j job.sh", ["/o/u/4711_3", "/e/004713"]),
    ("", ["/work/slurm-4711_3.out"]),
    ("sbatch 'unbalanced", ["/work/slurm-4711_3.out"]),
]


@pytest.mark.parametrize(("submit", "outputs"), SUBMITTED)
def test_the_accountings_word(submit, outputs):
    job = accounted_job(ROW.format(submit=submit), "4711_3")
    assert [str(path) for path in job.outputs] == outputs
    assert (job.facts.state, job.facts.exit_code, job.facts.nodes) == ("NODE_FAIL", 1, ())


def test_what_the_controller_forgot_the_accounting_knows():
    rows = "\n".join(ROW.format(submit="sbatch job.sh") for _ in range(3))
    job = slurm_job(Slurm(sacct=rows + "\n"), "4711_3")
    assert job.facts.attempt == "2"


def test_of_a_heterogeneous_job_the_first_part_has_the_output():
    shown = [
        f"JobId={4711 + part} HetJobId=4711 HetJobOffset={part} JobName=train JobState=FAILED "
        f"ExitCode=1:0 NodeList=gpu-{part} WorkDir=/w StdOut=/w/slurm-{4711 + part}.out"
        for part in (0, 1)
    ]
    job = slurm_job(Slurm(scontrol="\n".join(shown)), "4711")
    assert ([str(path) for path in job.outputs], job.facts.nodes) == (["/w/slurm-4711.out"], ())
    job = slurm_job(Slurm(scontrol=shown[1]), "4711+1")
    assert ([str(path) for path in job.outputs], job.facts.nodes) == (
        *(["/w/slurm-4712.out"], ("gpu-1",)),
    )
    rows = [
        "\x1f".join(
            (
                f"{4711 + part}",
                f"4711+{part}",
                "FAILED",
                "1:0",
                f"gpu-{part}",
                "/w",
                "train",
                "u",
                "",
            )
        )
        for part in (0, 1)
    ]
    job = slurm_job(Slurm(sacct="\n".join(rows)), "4711")
    assert ([str(path) for path in job.outputs], job.facts.nodes) == (["/w/slurm-4711.out"], ())
    assert job.facts.attempt == "0"


@pytest.mark.parametrize("job_id", ["", "x", "4711; reboot", "0", "-1"])
def test_what_is_no_job_id_is_never_given_to_slurm(job_id):
    with pytest.raises(UnknownError, match="no job id"):
        slurm_job(Slurm(), job_id)


def test_a_job_that_nobody_knows():
    with pytest.raises(UnknownError, match="Invalid job id"):
        slurm_job(Slurm(), "4711")
    with pytest.raises(UnknownError, match="sacct knows no job"):
        slurm_job(Slurm(sacct="\n"), "4711")


def test_letters_of_file_names():
    assert expanded("a-%j-%5a-%%-%Q", {"j": "12", "a": "3", "%": "%"}) == "a-12-00003-%-%Q"
    assert job_in("", "1").outputs == ()


def pod(**status):
    return {
        "metadata": {"uid": "u-1"},
        "spec": {"nodeName": "gpu-3", "containers": [{"name": "train"}, {"name": "side"}]},
        "status": status,
    }


def container(name, state=None, last=None, restarts=0):
    ended = {"exitCode": 137, "reason": "OOMKilled", "message": "m"}
    return {
        "name": name,
        "restartCount": restarts,
        "state": {"terminated": ended} if state else {"running": {}},
        "lastState": {"terminated": ended} if last else {},
    }


class Api:
    def __init__(self, content):
        self.content = content
        self.asked = []

    def get(self, what, path, query=None):
        return self.content

    def text(self, what, path, query, most_bytes):
        self.asked.append((path, query["container"], query.get("previous")))
        if query["container"] == "side":
            raise UnknownError("The API server answers to get pods/log with 400")
        return b"a log\n"


def test_a_pod_by_the_api_server():
    api = Api(pod(phase="Running", containerStatuses=[container("train", last=True, restarts=2)]))
    found = pod_of_api(api, "ml/bert-worker-0")
    facts = found.facts
    assert (facts.job_id, facts.nodes, facts.attempt) == ("ml/bert", ("gpu-3",), "u-1-2")
    assert (facts.exit_code, facts.reason) == (137, "OOMKilled")
    path = "/api/v1/namespaces/ml/pods/bert-worker-0/log"
    assert api.asked == [(path, "train", "true"), (path, "side", None)]
    assert [log.head for log in found.logs] == [b"a log\n", b""]
    assert any("400" in note for note in facts.notes)


def test_the_log_of_what_sets_up_a_pod_is_read_where_that_failed():
    api = Api(pod(phase="Failed", initContainerStatuses=[container("clone", state=True)]))
    found = pod_of_api(api, "ml/bert-worker-0")
    assert [asked[1] for asked in api.asked] == ["clone", "train", "side"]
    assert found.logs[0].head == b"a log\n"
    api = Api(pod(phase="Running", initContainerStatuses=[container("clone")]))
    pod_of_api(api, "ml/bert-worker-0")
    assert [asked[1] for asked in api.asked] == ["train", "side"]


def test_a_pod_that_was_evicted():
    api = Api(pod(phase="Failed", reason="Evicted", message="low on memory"))
    facts = pod_of_api(api, "ml/bert-worker-0").facts
    assert (facts.reason, facts.exit_code, facts.failed) == ("Evicted", None, True)


def test_a_pod_that_the_cluster_ended():
    ended = {"exitCode": 143, "reason": "Error"}
    status = {"name": "train", "restartCount": 0, "state": {"terminated": ended}}
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptionByScheduler",
        "message": "preempting to accommodate a higher priority pod",
    }
    found = pod(phase="Failed", containerStatuses=[status], conditions=[condition])
    facts = pod_of_api(Api(found), "ml/bert-worker-0").facts
    assert (facts.reason, facts.message) == ("PreemptionByScheduler", condition["message"])
    condition["status"] = "False"
    assert pod_of_api(Api(found), "ml/bert-worker-0").facts.reason == ""


def test_of_containers_the_one_that_ended_first_says_how():
    def ended(name, code, second):
        terminated = {"exitCode": code, "reason": "Error"}
        if second:
            terminated["finishedAt"] = f"2026-03-01T10:20:{second}Z"
        return {"name": name, "restartCount": 0, "state": {"terminated": terminated}}

    both = [ended("istio-proxy", 143, 31), ended("train", 2, 30)]
    assert pod_of_api(Api(pod(containerStatuses=both)), "ml/b-0").facts.exit_code == 2
    untold = [ended("istio-proxy", 143, None), ended("train", 2, 30)]
    assert pod_of_api(Api(pod(containerStatuses=untold)), "ml/b-0").facts.exit_code == 2


def test_a_pod_that_is_not_there():
    with pytest.raises(LogError, match="no such pod"):
        pod_of_api(Api(None), "ml/bert-worker-0")


@pytest.mark.parametrize("text", ["", "a/b/c", "../x", "ml/", "ML/Bert", "ml/x y"])
def test_what_is_no_name_of_a_pod(text):
    with pytest.raises(LogError, match="NAMESPACE/POD"):
        split_name(text)
    assert split_name("bert-0") == ("default", "bert-0")


def test_a_pod_by_its_nodes_folder(tmp_path):
    folder = tmp_path / "ml_bert-worker-0_u-1" / "train"
    folder.mkdir(parents=True)
    (folder / "0.log").write_text("old\n")
    (folder / "11.log").write_text("2026-03-01T10:20:30.1Z stderr F new\n")
    found = pod_of_folder(tmp_path, "ml/bert-worker-0")
    assert [log.name.rpartition("/")[2] for log in found.logs] == ["11.log"]
    assert found.facts.job == "ml/bert"
    with pytest.raises(LogError, match="no logs of pod"):
        pod_of_folder(tmp_path, "ml/other-0")
    assert json.dumps(found.facts.text) == '""'


@pytest.mark.parametrize(
    ("in_settings", "in_environment", "handed_on"),
    [
        (True, False, "named"),
        (False, True, "inherited"),
        (True, True, "named"),
        (False,) * 2 + ("",),
    ],
)
@pytest.mark.parametrize("program", ["scontrol", "sacct"])
def test_slurms_commands_find_its_settings(
    tmp_path, monkeypatch, program, in_settings, in_environment, handed_on
):
    command = tmp_path / program
    command.write_text('#!/bin/sh\nprintf %s "${SLURM_CONF##*/}"\n')
    command.chmod(0o755)
    (tmp_path / "named").touch()
    options = {"type": "slurm", "folder": str(tmp_path)}
    if in_settings:
        options["configuration"] = str(tmp_path / "named")
    monkeypatch.delenv("SLURM_CONF", raising=False)
    if in_environment:
        monkeypatch.setenv("SLURM_CONF", str(tmp_path / "inherited"))
    commands = slurm_commands(ResponderConfig.model_validate({"cluster": options}))
    assert commands.ask(program, "show") == handed_on


class Namespace(Api):
    """A namespace with some pods of one job, one of which goes while they are read."""

    def __init__(self, count):
        super().__init__(pod(phase="Running"))
        self.names = [f"bert-worker-{number}" for number in range(count)]
        self.kept = []

    def list(self, what, path, query=None):
        return [{"metadata": {"name": name}, "spec": self.content["spec"]} for name in self.names]

    def get(self, what, path, query=None):
        return None if path.endswith("-1") else self.content

    def text(self, what, path, query, most_bytes):
        self.kept.append(most_bytes)
        return b"a log\n"


@pytest.mark.parametrize("count", [2, 30])
def test_the_pods_of_a_job(monkeypatch, count):
    api = Namespace(count)
    monkeypatch.setattr(cluster_jobs, "kubernetes_api", lambda _config: api)
    gather = job_of_cluster(ResponderConfig(cluster={"type": "kubernetes"}))

    found = gather(Job("", "ml/bert", "gpu-3", 0.0))

    assert 2 * (count - 1) == len(found.logs)
    assert ("--pod ml/bert-worker-1: there is no such pod.",) == found.facts.notes
    # However many there are, they fit into the memory that all logs of a job have.
    assert sum(api.kept) <= TOTAL_BYTES
