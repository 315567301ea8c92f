"""`headrace selftest`."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from lake import create_lake
from lake.errors import HeadraceError
from loader.proof.report import Difference, ProofResult
from packing.plan_store import save_plan
from tests.loader import scenes
from tests.s3_server import S3Server
from tools.cli import build_app
from tools.commands import selftest


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> str:
    made = scenes.scene_lake(tmp_path_factory.mktemp("selftest"))
    save_plan(made, scenes.scene_plan(made), "mix")
    return made.uri


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(build_app(), ["selftest", *arguments])


def _files(lake: str) -> list[tuple[str, int]]:
    return sorted((str(p), p.stat().st_mtime_ns) for p in Path(lake).rglob("*") if p.is_file())


@pytest.fixture
def one_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is two processes, and tested in tests/guarantees/test_faults.py."""
    monkeypatch.setattr(selftest, "_FAULTS", {"flip": selftest._FAULTS["flip"]})


@pytest.mark.usefixtures("one_fault")
def test_a_lake_without_a_plan_is_proved_and_left_as_it_is(tmp_path: Path) -> None:
    made = scenes.scene_lake(tmp_path).uri
    before = _files(made)
    result = _run(made, "--steps", "1", "--kills", "1", "--world-sizes", "1")
    assert result.exit_code == 0, result.output
    words = " ".join(result.stdout.split())
    assert "a small plan made for this, steps 0 to 1" in words
    assert words.count("holds") == 3
    assert "FAILS" not in words
    assert _files(made) == before


@pytest.mark.s3
@pytest.mark.usefixtures("one_fault")
def test_a_saved_plan_in_an_object_store(s3_server: S3Server) -> None:
    uri, options = s3_server.uri("selftest.lake"), s3_server.storage_options
    remote = scenes.fill_lake(create_lake(uri, storage_options=options))
    save_plan(remote, scenes.scene_plan(remote), "mix")
    stores = [word for pair in options.items() for word in ("--storage-option", "=".join(pair))]
    common = ("--plan", "mix", "--first-step", "3", "--steps", "2", "--kills", "1", "--json")
    result = _run(uri, *common, "--world-sizes", "1", *stores)
    assert result.exit_code == 0, result.output
    report: dict[str, Any] = json.loads(result.stdout)
    assert report["passed"]
    assert not report["whole_plan"]
    assert report["not_tried"] == []
    proofs = report["proofs"]
    assert [proof["proof"] for proof in proofs] == ["exactly once", "elastic", "faults"]
    assert {(proof["first_step"], proof["stop_step"]) for proof in proofs} == {(3, 5)}
    assert proofs[0]["counts"]["kills"] == 1
    assert all(s3_server.storage_options["aws_secret_access_key"] not in str(p) for p in proofs)


def test_what_failed_is_said_and_counted(lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def prove(*_: object) -> tuple[list[ProofResult], list[str]]:
        shared: dict[str, Any] = {"tried": "x", "first_step": 0, "stop_step": 12, "seconds": 1.0}
        wrong = (Difference(step=3, slot=1, what="other bytes"),)
        return [
            ProofResult(proof="a", counts={}, **shared),
            ProofResult(proof="b", counts={"packs": 7}, differences=wrong, **shared),
            ProofResult(proof="c", counts={}, differences=wrong * 9, outcome="Oops: x", **shared),
        ], ["stall"]

    monkeypatch.setattr(selftest, "_prove", prove)
    result = _run(lake, "--plan", "mix")
    assert result.exit_code == 1
    assert "b: step 3, slot 1: other bytes" in result.stdout
    assert result.stdout.count("c: step 3") == 5
    assert "out of time, not tried: stall" in result.stdout
    as_json = _run(lake, "--plan", "mix", "--json")
    assert as_json.exit_code == 1
    report = json.loads(as_json.stdout)
    assert report["failed"] == 2
    assert [proof["passed"] for proof in report["proofs"]] == [True, False, False]


def _result(**about: Any) -> ProofResult:
    return ProofResult(
        proof="a", tried="x", first_step=0, stop_step=12, counts={}, seconds=1.0, **about
    )


@pytest.mark.parametrize(
    ("results", "left"),
    [
        ([_result(), _result(unproved="no fault was met")], []),
        ([_result()], ["stall"]),
    ],
)
def test_what_was_not_proved_is_no_success(
    lake: str, monkeypatch: pytest.MonkeyPatch, results: list[ProofResult], left: list[str]
) -> None:
    monkeypatch.setattr(selftest, "_prove", lambda *_: (results, left))
    result = _run(lake, "--plan", "mix")
    assert result.exit_code == 3
    assert "FAILS" not in result.stdout
    assert ("NOT PROVED, no fault was met" in result.stdout) is (not left)
    report = json.loads(_run(lake, "--plan", "mix", "--json").stdout)
    assert (report["passed"], report["failed"]) == (False, 0)
    assert report["unproved"] == sum(bool(each.unproved) for each in results)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--world-sizes", "two"), "write numbers, such as 1,2,3"),
        (("--world-sizes", "0,1"), "at least 1 rank"),
        (("--world-sizes", "4"), "the plan has 3 slots per step"),
        (("--first-step", "99"), "it has 12"),
        (("--plan", "nothing"), "no plan 'nothing'"),
    ],
)
def test_what_cannot_be_proved_is_named(lake: str, arguments: tuple[str, ...], words: str) -> None:
    result = _run(lake, "--plan", "mix", *arguments)
    assert isinstance(result.exception, HeadraceError)
    assert words in str(result.exception)
