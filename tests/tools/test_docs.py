"""Commands and Python in the documentation are true."""

import ast
import importlib
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from lake import Episode, EpisodeWriter, create_lake
from packing.make_plan import make_plan
from packing.plan_store import save_plan
from packing.window_spans import WindowSpans
from tools.cli import build_app
from tools.demo.script import DemoSize, stages

_ROOT = Path(__file__).resolve().parents[2]
_PAGES = sorted(
    page
    for pattern in ("*.md", "docs/**/*.md", "*/README.md", "*/*/README.md")
    for page in _ROOT.glob(pattern)
    if not any(part.startswith(".") for part in page.relative_to(_ROOT).parts)
)
_BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)


def _blocks(page: Path, *languages: str) -> Iterator[str]:
    for language, text in _BLOCK.findall(page.read_text(encoding="utf-8")):
        if language in languages:
            yield text


def _commands(text: str) -> Iterator[list[str]]:
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line.removeprefix("$ "), comments=True)
        if "headrace" in words[:6]:
            yield words[words.index("headrace") + 1 :]


def _parse(words: list[str]) -> None:
    """Let the command parse its arguments, without running it."""
    command: Any = typer.main.get_command(build_app())
    words = [word for word in words if word not in {"[...]", "..."}]
    while hasattr(command, "commands") and words and not words[0].startswith("-"):
        assert words[0] in command.commands, f"no command {words[0]}"
        command, words = command.commands[words[0]], words[1:]
    if "--help" not in words:
        command.make_context("headrace", list(words))


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: str(page.relative_to(_ROOT)))
def test_documented_commands_parse(page: Path) -> None:
    for text in _blocks(page, "sh", "bash", "console"):
        for words in _commands(text):
            _parse(words)


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: str(page.relative_to(_ROOT)))
def test_documented_imports_exist(page: Path) -> None:
    for text in _blocks(page, "python"):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and node.module:
                module = importlib.import_module(node.module)
                for name in node.names:
                    assert hasattr(module, name.name), f"{node.module} has no {name.name}"


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: str(page.relative_to(_ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target, part in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", text):
        if "://" not in target:
            there = page.parent / target if target else page
            assert there.exists(), f"{page.name}: {target}"
            if part:
                assert part in _anchors(there), f"{page.name}: {target}#{part}"


def _anchors(page: Path) -> set[str]:
    """Headings as a link names them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_the_trainer_of_the_loader_s_guide_runs(
    tmp_path: Path, make_episode: Callable[..., Episode], monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    lake = create_lake(tmp_path / "robots.lake")
    with EpisodeWriter(lake) as writer:
        for number in range(3):
            writer.add(make_episode(number, steps=20))
    lake.refresh()
    plan = make_plan(lake, spans=WindowSpans(horizon=4), budget_tokens=256, slots_per_step=2)
    save_plan(lake, plan, "mix")
    [block] = [text for text in _blocks(_ROOT / "loader/README.md", "python") if "AdamW" in text]
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "loader/README.md", "exec"), {"__name__": "user"})
    saved = torch.load(tmp_path / "last.pt", weights_only=True)
    assert saved["loader"]["next_step"] == plan.num_steps
    assert all(torch.isfinite(value).all() for value in saved["model"].values())


def test_every_command_of_the_demo_parses(tmp_path: Path) -> None:
    for cameras in (True, False):
        todo = stages(
            tmp_path, size=DemoSize(), seed=0, cameras=cameras, recordings=[tmp_path / "others"]
        )
        for stage in todo:
            _parse(list(stage.arguments))
