from __future__ import annotations

import base64
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from detector.small_case import write_case
from peerwatch_demo.stack.process import free_ports
from peerwatch_detector import __main__ as entry
from peerwatch_detector import __version__
from peerwatch_detector.__main__ import main
from peerwatch_detector.models.store import load_bundle
from web_client import Authority, ask, eventually, hash_of


def environment() -> dict[str, str]:
    import peerwatch_detector
    import peerwatch_exporter

    roots = [str(Path(m.__file__).parents[1]) for m in (peerwatch_exporter, peerwatch_detector)]
    return os.environ | {"PYTHONPATH": os.pathsep.join(roots)}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "peerwatch_detector", *arguments],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )


def test_help_lists_the_commands_and_needs_no_extras() -> None:
    code = "import sys\nsys.modules['numpy'] = sys.modules['pydantic'] = None\n"
    code += "from peerwatch_detector.__main__ import main\nmain(['--help'])"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=False
    )
    assert (0, "") == (done.returncode, done.stderr)
    assert "evaluate jobs and serve the findings" in done.stdout
    assert "train the models" in done.stdout


def test_ctrl_c_is_told_in_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setitem(entry._COMMANDS, "evaluate", interrupted)

    assert 130 == main(["evaluate", "cases"])
    assert "\npeerwatch-detector: interrupted.\n" == capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert (0, f"peerwatch-detector {__version__}\n") == (
        caught.value.code,
        capsys.readouterr().out,
    )


@pytest.mark.parametrize("arguments", [[], ["detect"], ["run", "--port", "1"], ["train"]])
def test_wrong_usage_exits_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert 2 == caught.value.code
    assert "usage: peerwatch-detector" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("missing", "arguments", "extra"),
    [
        ("pydantic", "['run']", "detector"),
        ("numpy", "['run']", "detector"),
        ("flask", "['run']", "detector"),
        ("torch", "['train', '--output', 'x.npz', '--cases', 'y']", "detector,train"),
    ],
)
def test_a_missing_extra_is_told_with_the_command_that_brings_it(
    missing: str, arguments: str, extra: str
) -> None:
    code = f"import sys\nsys.modules[{missing!r}] = None\n"
    code += f"from peerwatch_detector.__main__ import main\nsys.exit(main({arguments}))"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=False
    )
    assert 2 == done.returncode
    (line,) = done.stderr.splitlines()
    assert f"needs {missing!r}, which is not installed" in line
    # No index of packages has it.
    assert f"{sys.executable} -m pip install -c constraints.txt '.[{extra}]'" in line


def test_a_port_in_use_is_told() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = run("run", "--listen", f"127.0.0.1:{port}")
    assert 1 == done.returncode
    assert f"Cannot listen on '127.0.0.1' port {port}: Address already in use." in done.stderr
    assert "Choose another with --listen HOST:PORT or listen.port." in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("method", ["peerwatch", "minder", "zscore"])
@pytest.mark.parametrize("command", [["run"], ["backtest", "case"], ["evaluate", "case"]])
def test_a_missing_bundle_is_told_whatever_the_method(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], method: str, command: list[str]
) -> None:
    path = tmp_path / "detector.yaml"
    path.write_text(f"models: {tmp_path}/missing.npz\nmethod: {method}\n")
    assert 2 == main([*command, "--config", str(path)])
    (line,) = capsys.readouterr().err.splitlines()
    assert "models: " in line
    assert "missing.npz: cannot be read" in line


def test_training_needs_a_range_or_cases(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 2 == main(["train", "--output", str(tmp_path / "m.npz"), "--job-id", "j"])
    assert "--start, --end missing" in capsys.readouterr().err


@pytest.mark.parametrize(("start", "end"), [("900", "900"), ("900", "0"), ("0", "3")])
def test_training_on_an_empty_range_is_wrong_usage(
    start: str, end: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--job-id", "j", "--start", start, "--end", end]
    assert 2 == main(["train", "--output", str(tmp_path / "m.npz"), *arguments])
    (line,) = [
        line for line in capsys.readouterr().err.splitlines() if "peerwatch-detector: " in line
    ]
    assert "check --start and --end" in line


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["train", "--output", "m.npz", "--steps", "0"], "'0' must be a whole number of at least"),
        (["train", "--output", "m.npz", "--seed", "-1"], "'-1' must be a whole number from 0"),
        (["train", "--output", "m.npz", "--start", "nan"], "'nan' is no time"),
        (["train", "--output", "m.npz", "--end", "inf"], "'inf' is no time"),
        (["backtest", "x", "-j", "0"], "'0' must be a whole number of at least 1"),
        (["evaluate", "x", "-j", "-2"], "'-2' must be a whole number of at least 1"),
    ],
)
def test_numbers_that_make_no_sense_are_wrong_usage(
    arguments: list[str], what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert 2 == caught.value.code
    assert what in capsys.readouterr().err


def test_training_from_cases_end_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_case(tmp_path / "case")
    config = tmp_path / "detector.yaml"
    config.write_text("metrics: {enabled: [cpu_usage, gpu_power]}\n")
    output = tmp_path / "models.npz"
    arguments = ["--config", str(config), "--output", str(output), "--cases", str(folder)]
    assert 0 == main(["train", *arguments, "--steps", "400"])
    captured = capsys.readouterr()
    assert f"1 models written to {output}\n" == captured.out
    assert "held-out mean squared error" in captured.err
    made = load_bundle(output).cards["cpu_usage"]
    assert (4 * 193, 8) == (made.windows, made.window_length)


def test_training_on_what_is_no_case_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 2 == main(["train", "--output", str(tmp_path / "m"), "--cases", str(tmp_path)])
    assert "case.json" in capsys.readouterr().err


def test_an_output_that_cannot_be_written_is_told_before_the_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_case(tmp_path / "case")
    output = str(tmp_path / "nowhere" / "models.npz")
    assert 1 == main(["train", "--output", output, "--cases", str(folder)])
    captured = capsys.readouterr()
    assert "cannot be written" in captured.err
    assert "mean squared error" not in captured.err


def test_training_from_an_unreachable_prometheus_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"http://127.0.0.1:{free_ports(1)[0]}"
    arguments = ["--prometheus", url, "--job-id", "j", "--start", "0", "--end", "900"]
    assert 1 == main(["train", "--output", str(tmp_path / "m"), *arguments])
    assert "cannot be reached" in capsys.readouterr().err


@contextmanager
def running(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "peerwatch_detector", "run", *arguments],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def get(url: str, within: float = 120.0) -> tuple[int, str]:
    """Ask until somebody answers."""
    end = time.monotonic() + within
    while True:
        try:
            with urllib.request.urlopen(url, timeout=300) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_detector_serves_without_prometheus_and_stops(end: signal.Signals) -> None:
    port, prometheus = free_ports(2)
    address = f"http://127.0.0.1:{port}"
    with running(
        "--listen",
        f"127.0.0.1:{port}",
        "--prometheus",
        f"http://user:secret@127.0.0.1:{prometheus}",
    ) as process:
        status, exposition = get(f"{address}/metrics")
        assert 200 == status
        assert "peerwatch_reader_up 0.0" in exposition
        assert (200, "peerwatch-detector is healthy.\n") == get(f"{address}/-/healthy")
        assert 503 == get(f"{address}/-/ready")[0]
        assert "Prometheus cannot be read" in get(f"{address}/")[1]
        until = time.monotonic() + 120
        while 'errors_total{reason="unreachable"} 1.0' not in get(f"{address}/metrics")[1]:
            assert time.monotonic() < until
            time.sleep(0.05)
        process.send_signal(end)
        _, stderr = process.communicate(timeout=300)
    assert 0 == process.returncode
    assert f"started version={__version__} listen=127.0.0.1:{port}" in stderr
    assert 1 == stderr.count("failed what=discovery reason=unreachable")
    assert "Traceback" not in stderr
    assert "secret" not in stderr


def test_web_configuration_protects_and_is_read_again_on_sighup(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.issue("server")
    path = tmp_path / "web.yaml"
    tls = "tls_server_config: {cert_file: server.crt, key_file: server.key}\n"
    path.write_text(tls + f"basic_auth_users: {{prometheus: '{hash_of('secret')}'}}\n")
    port, prometheus = free_ports(2)
    login = {"Authorization": "Basic " + base64.b64encode(b"prometheus:secret").decode()}
    with running(
        f"--web.config.file={path}",
        f"--listen=127.0.0.1:{port}",
        f"--prometheus=http://127.0.0.1:{prometheus}",
    ) as process:
        assert process.stderr is not None
        started = next(line for line in process.stderr if "started " in line)
        assert " tls=on " in started
        client = authority.client()
        refused = ask(port, "/", context=client)
        assert (401, 'Basic realm="peerwatch-detector", charset="UTF-8"') == (
            refused.status,
            refused.headers["WWW-Authenticate"],
        )
        assert 200 == ask(port, "/", context=client, **login).status
        exposition = ask(port, "/metrics", context=client, **login).body.decode()
        assert "\npeerwatch_web_failed_logins_total 1\n" in exposition
        assert "\npeerwatch_web_config_reload_failed 0\n" in exposition
        path.write_text(tls + "basic_auth_users: {prometheus: secret}\n")
        process.send_signal(signal.SIGHUP)
        assert any("web configuration not taken over" in line for line in process.stderr)
        exposition = ask(port, "/metrics", context=client, **login).body.decode()
        assert "\npeerwatch_web_config_reload_failed 1\n" in exposition
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=300)
    assert 0 == process.returncode


def test_settings_are_read_again_on_sighup(tmp_path: Path) -> None:
    path = tmp_path / "detector.yaml"
    path.write_text("min_nodes: 3\n")
    port, prometheus = free_ports(2)

    def metrics() -> str:
        return ask(port, "/metrics").body.decode()

    with running(
        f"--config={path}",
        f"--listen=127.0.0.1:{port}",
        f"--prometheus=http://127.0.0.1:{prometheus}",
    ) as process:
        assert process.stderr is not None
        assert any("started " in line for line in process.stderr)
        assert "\npeerwatch_config_last_reload_successful 1\n" in metrics()
        path.write_text("metrics: {enabled: [cpu_usage]}\ncycle_seconds: 20\n")
        process.send_signal(signal.SIGHUP)
        assert any("changed=metrics.enabled" in line for line in process.stderr)
        assert any("settings=cycle_seconds" in line for line in process.stderr)
        eventually(lambda: 1 == metrics().count("\npeerwatch_model_info{"))
        path.write_text("metrics: {enabled: [no_such]}\n")
        process.send_signal(signal.SIGHUP)
        assert any("those before stay" in line for line in process.stderr)
        exposition = metrics()
        assert "\npeerwatch_config_last_reload_successful 0\n" in exposition
        assert '\npeerwatch_config_reloads_total{result="failure"} 1\n' in exposition
        assert 1 == exposition.count("\npeerwatch_model_info{")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=300)
    assert 0 == process.returncode


def test_mistakes_in_the_web_configuration_exit_with_2(tmp_path: Path) -> None:
    path = tmp_path / "web.yaml"
    path.write_text("basic_auth_users: {alice: sesame, bob: sesame}\n")
    done = run("run", f"--web.config.file={path}", "--listen=127.0.0.1:0")
    assert 2 == done.returncode
    first, second = (line for line in done.stderr.splitlines() if "peerwatch-detector: " in line)
    assert f"{path}: basic_auth_users.alice: this is no bcrypt hash" in first
    assert "basic_auth_users.bob" in second
    assert "sesame" not in done.stderr


def test_mistakes_of_the_configuration_exit_with_2(tmp_path: Path) -> None:
    path = tmp_path / "detector.yaml"
    path.write_text("methd: x\nlisten: {port: -1}\n")
    done = run("run", "--config", str(path))
    assert (2, "") == (done.returncode, done.stdout)
    assert 2 == len(done.stderr.splitlines())


@pytest.mark.parametrize(
    "arguments",
    [["backtest"], ["evaluate"], ["train", "--output", "m.npz", "--cases"]],
    ids=["backtest", "evaluate", "train"],
)
def test_a_case_that_is_none_has_one_line_and_the_same_exit_code_in_every_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert 2 == main([*arguments, str(tmp_path / "none")])
    said = capsys.readouterr().err
    assert 1 == said.count("peerwatch-detector: ")
    assert "case.json" in said


def test_check_tells_that_a_configuration_is_sound(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, web = tmp_path / "detector.yaml", tmp_path / "web.yaml"
    path.write_text("method: minder\n")
    web.write_text("http_server_config: {headers: {X-Frame-Options: sameorigin}}\n")
    assert 0 == main(["run", "--check", "--config", str(path), "--web.config.file", str(web)])
    assert "The configuration has no mistakes.\n" == capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("methd: x", "methd: unknown key"),
        ("models: /no/such.npz", "models: /no/such.npz: cannot be read"),
        ("web: {config_file: web.yaml}", "web.yaml: cannot be read"),
    ],
)
def test_check_tells_mistakes_and_exits_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    path = tmp_path / "detector.yaml"
    path.write_text(text)
    assert 2 == main(["run", "--check", "--config", str(path)])
    captured = capsys.readouterr()
    assert ("", 1) == (captured.out, len(captured.err.splitlines()))
    assert said in captured.err


def test_files_of_another_content_are_replaced_only_if_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 0 == main(["files", "rules", "--copy", str(tmp_path)])
    own, other = tmp_path / "job.rules.yaml", tmp_path / "node.rules.yaml"
    shipped = own.read_text()
    own.write_text("groups: []\n")
    other.unlink()
    capsys.readouterr()

    assert 1 == main(["files", "rules", "--copy", str(tmp_path)])

    captured = capsys.readouterr()
    assert ("", 1) == (captured.out, len(captured.err.splitlines()))
    assert f"{own}: there with another content; nothing was copied" in captured.err
    assert ("groups: []\n", False) == (own.read_text(), other.exists())
    assert 0 == main(["files", "rules", "--copy", str(tmp_path), "--overwrite"])
    assert (shipped, True) == (own.read_text(), other.exists())


@pytest.mark.parametrize(
    ("arguments", "code", "what"),
    [
        (["--overwrite"], 2, "--overwrite: belongs to --copy FOLDER"),
        (["rules", "--copy", "/dev/null"], 1, "/dev/null: cannot be read or written"),
    ],
)
def test_a_mistake_in_files_is_one_line(
    arguments: list[str], code: int, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert code == main(["files", *arguments])
    (line,) = capsys.readouterr().err.splitlines()
    assert what in line


def test_files_end_quietly_if_nobody_reads_on() -> None:
    command = f"{sys.executable} -m peerwatch_detector files | true"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (0, "") == (done.returncode, done.stderr)
