"""The command line, in real processes where signals matter."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import peerwatch_exporter
from peerwatch_exporter import __version__
from peerwatch_exporter.__main__ import main
from peerwatch_exporter.collector import registrations
from peerwatch_exporter.process.notify import Notifier
from web_client import Authority, ask, eventually, hash_of

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(peerwatch_exporter.__file__).parents[1])}


class Running:
    """An exporter in a process of its own, and what it has logged."""

    def __init__(self, process):
        self.process = process
        self.log = ""
        self.port = int(self.wait_for(r"serving port=(\d+)")[1])

    def wait_for(self, pattern):
        """Read the log until it says this."""
        while not (found := re.search(pattern, self.log)):
            line = self.process.stderr.readline()
            assert line, f"it ended before it said {pattern!r}:\n{self.log}"
            self.log += line
        return found


@contextlib.contextmanager
def running(*flags, **environment):
    command = [sys.executable, "-m", "peerwatch_exporter", "--listen", "127.0.0.1:0", *flags]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env={**ENVIRONMENT, **environment}
    ) as process:
        try:
            yield Running(process)
        finally:
            process.kill()


def mistakes(capsys, *arguments):
    """Return what a command that ends with 2 says."""
    assert 2 == main(list(arguments))
    header, *lines = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"peerwatch-exporter: (1 mistake|\d+ mistakes) in the settings", header)
    return [line.strip() for line in lines]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_process_serves_and_ends_cleanly_on_a_signal(number):
    with running() as exporter:
        answer = ask(exporter.port, "/metrics")
        fast = ask(exporter.port, "/metrics/fast")
        exporter.process.send_signal(number)
        # The promise is 2 s; a busy machine may take longer to schedule us.
        assert 0 == exporter.process.wait(60)
    assert (200, 200) == (answer.status, fast.status)
    assert b'exporter_collector_success{collector="cpu"} 1' in answer.body
    assert b"\nfast_up 1" in fast.body


def test_signal_while_a_collector_hangs_ends_it_all_the_same(tmp_path):
    (tmp_path / "proc").mkdir()
    os.mkfifo(tmp_path / "proc" / "stat")
    with running("--path.procfs", str(tmp_path / "proc")) as exporter:
        stuck = rb'exporter_collector_stuck_seconds\{collector="cpu",gpu=""\} 0*[1-9.]'
        eventually(lambda: re.search(stuck, ask(exporter.port, "/metrics").body))
        exporter.process.send_signal(signal.SIGTERM)
        assert 0 == exporter.process.wait(60)


def test_systemd_is_told_that_it_is_ready_alive_and_ending(tmp_path):
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(path)
        systemd.settimeout(60)
        with running(NOTIFY_SOCKET=path, WATCHDOG_USEC="4000000") as exporter:
            said = [systemd.recv(100) for _ in range(4)]
            exporter.process.send_signal(signal.SIGTERM)
            assert 0 == exporter.process.wait(60)
        systemd.settimeout(0)
        with contextlib.suppress(BlockingIOError):
            while True:
                said.append(systemd.recv(100))
    assert [b"READY=1", *(len(said) - 2) * [b"WATCHDOG=1"], b"STOPPING=1"] == said


@pytest.mark.parametrize("address", ["", "/no/such/socket"])
def test_systemd_that_does_not_listen_does_no_harm(address, caplog):
    notifier = Notifier({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "30000000"})
    notifier.ready()
    assert bool(address) == ("cannot notify systemd" in caplog.text)
    assert (30.0 if address else None) == notifier.watchdog_seconds


@pytest.mark.parametrize("value", ["", "soon", "0", "-1"])
def test_garbled_watchdog_is_none(value):
    assert Notifier({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": value}).watchdog_seconds is None


def test_web_configuration_protects_and_is_read_again_on_sighup(tmp_path):
    authority = Authority(tmp_path)
    authority.issue("server")
    path = tmp_path / "web.yaml"
    tls = "tls_server_config: {cert_file: server.crt, key_file: server.key}\n"
    path.write_text(tls + f"basic_auth_users: {{prometheus: '{hash_of('secret')}'}}\n")
    with running("--web.config.file", str(path)) as exporter:
        exporter.wait_for("tls=on")
        assert 401 == ask(exporter.port, "/metrics", context=authority.client()).status
        path.write_text(tls + "basic_auth_users: {prometheus: secret}\n")
        exporter.process.send_signal(signal.SIGHUP)
        exporter.wait_for("web configuration not taken over")
        assert 401 == ask(exporter.port, "/metrics", context=authority.client()).status
        exporter.process.send_signal(signal.SIGTERM)
        assert 0 == exporter.process.wait(60)


def metrics_of(exporter):
    """Return the samples of the exposition, by name and labels as they stand there."""
    lines = ask(exporter.port, "/metrics").body.decode().splitlines()
    return dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))


def test_settings_are_read_again_on_sighup(tmp_path):
    config, kmsg = tmp_path / "exporter.yaml", tmp_path / "kmsg"
    kmsg.write_text("3,1,5000000,-;NVRM: Xid (PCI:0000:18:00): 109, pid=1, CTXSW_TIMEOUT\n")
    only = "collectors: {enabled: [cpu, xid, web%s]}\n"
    config.write_text(only % "" + "mean_seconds: 2\n")
    hardware = 'gpu_xid_class_errors_total{class="hardware",gpu="",pci_bus_id="0000:18:00.0"}'
    watch = hardware.replace("hardware", "watch")
    succeeded = 'exporter_config_reloads_total{result="success"}'
    with running("--config", str(config), "--path.kmsg", str(kmsg)) as exporter:
        eventually(lambda: metrics_of(exporter).get(watch) == "1")
        seen = metrics_of(exporter)
        assert "1" == seen["exporter_config_last_reload_successful"]
        config.write_text(
            only % ", memory" + "xid: {severity: {109: hardware}}\nweb: {max_connections: 9}\n"
        )
        exporter.process.send_signal(signal.SIGHUP)
        exporter.wait_for("changed=collectors.enabled,mean_seconds,xid.severity")
        exporter.wait_for("settings need a restart .*settings=web.max_connections")
        # What was counted before has the new class, and nothing of it is lost.
        eventually(lambda: metrics_of(exporter).get(hardware) == "1")
        eventually(lambda: "host_memory_total_bytes" in metrics_of(exporter))
        exposition = metrics_of(exporter)
        assert watch not in exposition
        assert exposition["host_boot_time_seconds"] == seen["host_boot_time_seconds"]

        config.write_text(only % ", nothing" + "deadline_seconds: 9\n")
        exporter.process.send_signal(signal.SIGHUP)
        exporter.wait_for("settings not taken over, those before stay.*deadline_seconds")
        eventually(lambda: metrics_of(exporter)["exporter_config_last_reload_successful"] == "0")
        assert "1" == metrics_of(exporter)[hardware]

        config.write_text(only % "")
        for _ in range(20):
            exporter.process.send_signal(signal.SIGHUP)
        eventually(lambda: "host_memory_total_bytes" not in metrics_of(exporter))
        exposition = metrics_of(exporter)
        assert "1" == exposition["exporter_config_last_reload_successful"]
        assert 2 <= int(exposition[succeeded]) < 20
        exporter.process.send_signal(signal.SIGTERM)
        assert 0 == exporter.process.wait(60)


def test_sigusr1_lets_go_of_the_driver():
    with running() as exporter:
        exporter.process.send_signal(signal.SIGUSR1)
        exporter.wait_for("driver released seconds=300")


def test_sigusr1_without_a_driver_says_so(tmp_path):
    config = tmp_path / "exporter.yaml"
    config.write_text("collectors: {enabled: [cpu]}\n")
    with running("--config", str(config)) as exporter:
        exporter.process.send_signal(signal.SIGUSR1)
        exporter.wait_for("no driver to release")


def test_log_can_be_json():
    with running("--log-format", "json") as exporter:
        entry = json.loads(exporter.log.splitlines()[-1])
    assert ("info", "peerwatch_exporter.process.service") == (entry["level"], entry["logger"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", entry["time"])


def test_main_process_loads_no_ssl_bcrypt_or_pynvml_unless_asked():
    code = (
        "import sys, time\n"
        "from peerwatch_exporter.process import service\n"
        "from peerwatch_exporter.__main__ import main\n"
        "def look(exporter, *_):\n"
        "    while exporter.runner.snapshot(60).number < 3: time.sleep(0.1)\n"
        "    print(sorted({'ssl', 'bcrypt', 'pynvml', 'http.client', 'prometheus_client', 'numpy',"
        " 'peerwatch_demo'} & set(sys.modules)), flush=True)\n"
        "service._follow = look\n"
        "main(['--listen', '127.0.0.1:0', '--log-level', 'error'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True, check=True
    )
    assert "[]\n" == done.stdout


def test_what_reads_the_settings_ends_in_peace_if_it_is_never_asked():
    """It is started before anything else can fail."""
    command = [sys.executable, "-m", "peerwatch_exporter.settings.isolated_load"]
    done = subprocess.run(
        command, env=ENVIRONMENT, stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    assert (0, b"", b"") == (done.returncode, done.stdout, done.stderr)


def test_port_in_use_ends_the_process_with_1(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert 1 == main(["--listen", f"127.0.0.1:{port}"])
    assert f"port {port}: Address already in use" in capsys.readouterr().err


def test_mistakes_in_file_and_flags_are_listed_together(tmp_path, capsys):
    path = tmp_path / "wrong.yaml"
    path.write_text("paths: {procfz: /proc}\ncollectors: {disabled: [nvme]}\n")
    absent = str(tmp_path / "absent")
    messages = mistakes(
        capsys, "--config", str(path), "--path.procfs", absent, "--path.sysfs", str(path),
        "--path.kmsg", absent, "--listen", "nowhere",
    )  # fmt: skip
    starts = [
        "--listen: 'nowhere' is not HOST:PORT",
        f"paths.procfs: '{absent}' is no directory",
        f"paths.sysfs: '{path}' is no directory",
        "paths.procfz: unknown key",
        "collectors.disabled.0: no collector 'nvme'",
    ]
    assert starts == [line[: len(start)] for start, line in zip(starts, messages, strict=True)]


def test_mistakes_in_the_web_configuration_end_the_process_with_2(tmp_path, capsys):
    path = tmp_path / "web.yaml"
    path.write_text("basic_auth_users: {alice: sesame, bob: sesame}\n")
    first, second = mistakes(capsys, "--web.config.file", str(path), "--listen", "127.0.0.1:0")
    assert f"{path}: basic_auth_users.alice: this is no bcrypt hash" == first[: first.index(";")]
    assert "sesame" not in first + second
    (only,) = mistakes(capsys, "--web.config.file", f"{path}.absent")
    assert f"{path}.absent: cannot be read: No such file or directory" == only


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--web.config"], "unrecognized arguments: --web.config"),
        (["start"], "invalid choice: 'start'"),
        (["--json"], "belong to the command bench"),
        (["bench", "--seconds", "0"], "not between 1 and 3600"),
    ],
)
def test_impossible_flags_end_the_process_with_2(arguments, text, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert 2 == ended.value.code
    assert text in capsys.readouterr().err


def test_collectors_are_listed(capsys):
    assert 0 == main(["collectors"])
    header, *rows = capsys.readouterr().out.splitlines()
    assert ["COLLECTOR", "DEFAULT", "EVERY", "PROCESS", "SUMMARY"] == header.split()
    names = [row.split()[0] for row in rows]
    assert sorted(registrations()) == names
    assert all(row.split()[1] in {"on", "off"} and len(row.split()) > 5 for row in rows)


def test_help_names_everything_one_needs(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    text = capsys.readouterr().out
    assert 0 == ended.value.code
    for word in ("/metrics/fast", "SIGHUP", "NOTIFY_SOCKET", "exit status", "examples:", "9400"):
        assert word in text


def test_version_is_printed(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert (0, f"peerwatch-exporter {__version__}\n") == (ended.value.code, capsys.readouterr().out)


def test_check_reads_settings_and_web_configuration_and_serves_nothing(tmp_path, capsys):
    settings, web = tmp_path / "exporter.yaml", tmp_path / "web.yaml"
    settings.write_text("deadline_seconds: 0.5\n")
    web.write_text("{}\n")
    flags = ["--check", "--config", str(settings), "--web.config.file", str(web)]
    assert 0 == main(flags)
    assert "The settings have no mistakes.\n" == capsys.readouterr().out
    web.write_text("basic_auth_users: {alice: sesame}\n")
    assert 2 == main(flags)
    said = capsys.readouterr().err
    assert "basic_auth_users.alice" in said
    assert "sesame" not in said
