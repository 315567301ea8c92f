"""The command as scripts see it: help, exit codes, one-line errors, light start."""

import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import pytest
import typer

from tools import cli


def _run(
    arguments: Sequence[str], env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tools.cli", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=env,
    )


def test_help_lists_every_command() -> None:
    done = _run(["--help"])
    assert done.returncode == 0
    for name in (
        "ingest", "inspect", "doctor", "sql", "select", "label", "pack", "plan", "load", "train",
        "simulate", "assess", "quantise", "bench", "demo",
    ):  # fmt: skip
        assert f"  {name} " in done.stdout, name


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["sql", "no-such.lake", "SELECT 1"], "no-such.lake"),
        (["pack", "no-such.lake"], "no-such.lake"),
        (["load", "no-such.lake", "plan"], "no-such.lake"),
        (["train", "no-such.lake", "plan", "--out", "run"], "no-such.lake"),
        (["doctor", "no-such.lake"], "no-such.lake"),
        (["inspect", "no-such-folder"], "no-such-folder"),
        (["ingest", "no-such-folder", "new.lake"], "no-such-folder"),
        (["assess", "no-such-run"], "no-such-run"),
        (["quantise", "no-such-run"], "no-such-run"),
        (["bench", "cost", "--quick", "--device", "nonsense"], "nonsense"),
    ],
)
def test_an_expected_error_ends_in_one_line_and_exit_code_2(
    arguments: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = _run(arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    line = done.stderr.strip().splitlines()[-1]
    assert line.startswith("headrace: ")
    assert says in line
    assert not list(tmp_path.iterdir()), "a refused command leaves nothing behind"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [(["pack", "x.lake", "--spans", "sideways"], "sideways"), (["bench", "nonsense"], "nonsense")],
)
def test_wrong_usage_is_told_with_exit_code_2(arguments: list[str], says: str) -> None:
    done = _run(arguments)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("module", ["tools.commands.sql", "tools.commands.ingest", "tools.cli"])
def test_commands_load_nothing_heavy_before_they_run(module: str) -> None:
    code = (
        f"import sys, {module}\n"
        "if hasattr(sys.modules[%r], 'build_app'): sys.modules[%r].build_app()\n"
        "heavy = {'torch', 'lance', 'h5py', 'mujoco', 'matplotlib'} & set(sys.modules)\n"
        "sys.exit(', '.join(sorted(heavy)) or 0)"
    ) % (module, module)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr


def test_ctrl_c_is_one_line_and_exit_code_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_lake: str) -> None:
        raise KeyboardInterrupt

    app = typer.Typer()
    app.command()(interrupted)
    monkeypatch.setattr(sys, "argv", ["headrace", "robots.lake"])
    monkeypatch.setattr(cli, "build_app", lambda: app)
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 130
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("headrace: stopped; ")


def test_the_version_is_that_of_the_distribution() -> None:
    done = _run(["--version"])
    assert (done.returncode, done.stdout.strip()) == (0, f"headrace {version('headrace')}")


@pytest.mark.parametrize(
    ("absent", "arguments", "extra"),
    [
        ("torch", ["bench", "training"], "torch"),
        ("torch", ["assess", "run"], "torch"),
        ("yaml", ["train", "x.lake", "plan", "--out", "run", "--config", "c.yaml"], "torch"),
        ("mujoco", ["simulate", "--out", "rec"], "sim"),
        ("matplotlib", ["demo"], "torch,sim"),
    ],
)
def test_a_missing_package_is_one_line_that_names_the_extra(
    absent: str, arguments: list[str], extra: str, tmp_path: Path
) -> None:
    (tmp_path / "c.yaml").write_text("seed: 1\n")
    code = (
        "import importlib.util, sys\n"
        f"sys.modules[{absent!r}] = None\n"
        "find = importlib.util.find_spec\n"
        f"importlib.util.find_spec = lambda name: None if name == {absent!r} else find(name)\n"
        "from tools.cli import main\n"
        f"sys.argv[1:] = {arguments!r}\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=tmp_path,
    )
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("headrace: ")
    assert line.endswith(f"pip install 'headrace[{extra}]'")
    assert [path.name for path in tmp_path.iterdir()] == ["c.yaml"]
