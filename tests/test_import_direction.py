"""Packages import downward only, and heavy or optional libraries stay where they belong."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FLOORS = {
    "lake": 1,
    "ingest": 2,
    "catalog": 2,
    "packing": 3,
    "loader": 4,
    "training": 5,
    "tools": 6,
}
WITHOUT_TORCH = ("lake", "ingest", "catalog", "packing")
FILES = sorted(path for package in FLOORS for path in (ROOT / package).rglob("*.py"))


def imports(path: Path) -> Iterator[tuple[str, ast.stmt]]:
    """Top-level name of everything a file imports, wherever in the file."""
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name.split(".")[0], node
        elif isinstance(node, ast.ImportFrom):
            # A relative import stays in its package.
            yield (node.module or "").split(".")[0] if not node.level else "", node


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_no_import_goes_up_or_sideways(path: Path) -> None:
    package = path.relative_to(ROOT).parts[0]
    for name, node in imports(path):
        allowed = name == package or FLOORS.get(name, 0) < FLOORS[package]
        assert allowed, f"{name_of(path)}:{node.lineno} imports {name}"
        assert name != "tests", f"{name_of(path)}:{node.lineno} imports the tests"


def test_every_package_has_a_floor() -> None:
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert packages - {"tests"} == set(FLOORS)


@pytest.mark.parametrize(
    ("library", "homes"),
    [
        # Where a library may be imported at all, below training and tools.
        ("torch", ("loader/",)),
        ("h5py", ("ingest/hdf5",)),
        ("obstore", ("lake/object_store.py", "loader/")),
        ("ray", ()),
        ("mujoco", ()),
        ("pickle", ()),
    ],
)
def test_a_library_stays_at_home(library: str, homes: tuple[str, ...]) -> None:
    strangers = [
        name_of(path)
        for path in FILES
        if FLOORS[path.relative_to(ROOT).parts[0]] < FLOORS["training"]
        and any(name == library for name, _ in imports(path))
        and not name_of(path).startswith(homes or "nowhere")
    ]
    assert not strangers


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_torch_is_not_loaded_by_what_lies_below_the_trainer() -> None:
    """Every module of the lower floors, the loader, its worker, and the start of the command."""
    modules = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in FILES
        if path.relative_to(ROOT).parts[0] in WITHOUT_TORCH and "hdf5" not in path.parts
        if path.name != "__main__.py"
    ]
    modules += ["loader", "loader.process.worker", "tools.cli"]
    code = (
        "import importlib, sys\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
        "heavy = ('torch', 'pydantic', 'h5py', 'mujoco', 'ray')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    assert run(code).strip() == "[]"


def test_the_names_of_the_lake_cost_nothing_until_used() -> None:
    heavy = ("numpy", "pyarrow", "lance", "av", "duckdb")
    code = f"import lake, sys; print([name for name in {heavy!r} if name in sys.modules])"
    assert run(code).strip() == "[]"


def test_every_public_name_of_the_lake_is_there() -> None:
    code = (
        "import lake\n"
        "for name in lake.__all__:\n"
        "    assert getattr(lake, name) is not None\n"
        "try: lake.nonsense\n"
        "except AttributeError as error: print(error)"
    )
    assert run(code).strip() == "module 'lake' has no attribute 'nonsense'"
