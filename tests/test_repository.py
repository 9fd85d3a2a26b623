"""Rules about the repository itself: who may import whom, what the lock files promise, what no file may name."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from pennon.index.vector.kinds import VECTOR_KINDS

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "pennon"
GENERATED = PACKAGE / "format" / "pb"
LOCK_FILES = ("requirements-build.lock", "requirements.lock")

# The rooms from top to bottom; those of one row are neighbors. A room may use its own row and the rows below it.
ROOMS = (
    # What users of other kinds test them with; nothing in the package imports it.
    {"testing"},
    {"__init__", "__main__", "cli", "spark", "text"},
    {"table"},
    {"report"},
    {"jobs"},
    {"query"},
    {"engine"},
    {"index"},
    {"format"},
    {"deferred", "display", "errors", "events", "secrets", "wording", "work"},
)
# Narrower than the rows: Spark's room moves tasks and blocks whatever they hold, and a query needs no Spark.
STRANGERS = {"engine": {"index", "format"}, "query": {"engine"}}
# Each has a package in index/ and one in jobs/.
FAMILIES = tuple(sorted(kind.parent.name for kind in (PACKAGE / "index").glob("*/kind.py")))
# A package that only some rooms may import. For pennon.testing pylance is the oracle and the other writer of a table.
KEEPERS = {
    "pyspark": {"engine", "spark"},
    "lance": {"format", "testing"},
    "hypothesis": {"testing"},
    "rich": {"cli"},
    "click": {"cli"},
}

# The only places that name a quantizer's class; whoever else uses a quantizer does not ask which one it is.
QUANTIZERS = PACKAGE / "index" / "vector" / "quantizers"
QUANTIZER_REGISTRY = PACKAGE / "index" / "vector" / "kinds.py"

# Words with a usual one in their place: pylance, again, neighbor, merging, unknown, commit, remapping, lazily, so.
UNUSUAL_WORDS = (
    *("stock", "anew", "neighbour", "melting", "strange", "publish(ed)?", "carrying", "afresh", "at need", "believed?"),
    *("dear(ly|er)?", "hence", "hushed", "lest", "let go", "once more", "speaks?"),
)
# The same: recorded, reported, valid, N, remap, is in, current, running, next to, any.
LISTED_WORDS = (
    *("said", "told", "says?", "tells?", "asks", "so many", "so few", "whoever", "somebody", "nobody", "whatever"),
    *("carr(y|ies|ied)", "sound", "stands?", "vouch(es)?", "by itself", "under way", "today's", "meanwhile"),
    *("besides?", "brings?", "lies?", "aside", "of their own", "called off", "given up", "mended", "torn"),
)


def modules() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if GENERATED not in path.parents)


def room_of(module: Path) -> str:
    return module.relative_to(PACKAGE).with_suffix("").parts[0]


def row_of(room: str) -> int:
    rows = [number for number, row in enumerate(ROOMS) if room in row]
    assert rows, f"pennon.{room} stands in no row of ROOMS"
    return rows[0]


@cache
def nodes(module: Path) -> tuple[ast.AST, ...]:
    """The syntax of a module, which most rules look at."""
    return tuple(ast.walk(ast.parse(module.read_text("utf-8"))))


def imports(module: Path) -> Iterator[tuple[int, str]]:
    """Line and dotted name of everything a module imports; `from a import b` counts as `a.b`."""
    for node in nodes(module):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module.relative_to(ROOT)}:{node.lineno}: relative import"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def imported_rooms(module: Path) -> Iterator[tuple[int, str]]:
    for line, name in imports(module):
        package, _, rest = name.partition(".")
        if package == "pennon":
            first = rest.partition(".")[0]
            is_room = (PACKAGE / first).is_dir() or (PACKAGE / f"{first}.py").is_file()
            yield line, first if first and is_room else "__init__"


def names(module: Path) -> Iterator[tuple[int, str]]:
    """Line and name of all that a module imports, uses or looks up in another; faiss has classes of its own."""
    for node in nodes(module):
        if isinstance(node, ast.Name):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) != "faiss":
            yield node.lineno, node.attr
    yield from ((line, name.rpartition(".")[2]) for line, name in imports(module))


@cache
def tracked_text() -> dict[str, str]:
    """Every text file of the repository, committed or about to be, by its path."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if listing.returncode:
        pytest.skip("not a git work tree")
    texts: dict[str, str] = {}
    for name in filter(None, listing.stdout.split("\0")):
        path = ROOT / name
        data = path.read_bytes() if path.is_file() else b""
        if b"\0" not in data:
            texts[name] = data.decode("utf-8")
    return texts


def mentions(pattern: str, *, under: str = "") -> list[str]:
    found = re.compile(pattern)
    return [
        f"{name}:{number}: {line.strip()[:120]}"
        for name, text in tracked_text().items()
        if name.startswith(under) and found.search(text)
        for number, line in enumerate(text.splitlines(), 1)
        if found.search(line)
    ]


def pins(lock: str) -> dict[str, Version]:
    found = re.findall(r"^([\w.-]+)==([\w.!+-]+)", (ROOT / lock).read_text("utf-8"), re.MULTILINE)
    return {canonicalize_name(name): Version(version) for name, version in found}


def declared() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    return [Requirement(line) for group in groups for line in group]


def test_every_module_stands_in_a_known_room() -> None:
    assert {room_of(module) for module in modules()} <= set().union(*ROOMS)


def test_deferred_names_are_those_that_type_checkers_import() -> None:
    wrong: dict[str, dict[str, str]] = {}
    for module in modules():
        assigned = {
            node.targets[0].id: ".".join(part.value for part in node.value.args if isinstance(part, ast.Constant))
            for node in nodes(module)
            if isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and isinstance(node.value, ast.Call)
            and isinstance(node.value.func, ast.Name)
            and node.value.func.id == "deferred"
        }
        imported = {name.rpartition(".")[2]: name for _, name in imports(module)}
        if assigned != {name: imported.get(name) for name in assigned}:
            wrong[str(module.relative_to(ROOT))] = assigned
    assert not wrong


def test_a_room_uses_only_what_stands_below_it() -> None:
    wrong = [
        f"{module.relative_to(ROOT)}:{line}: {room_of(module)} uses {used}"
        for module in modules()
        for line, used in imported_rooms(module)
        if row_of(used) < row_of(room_of(module)) or used in STRANGERS.get(room_of(module), ())
    ]
    assert not wrong


@pytest.mark.parametrize("package", KEEPERS)
def test_only_its_keepers_import(package: str) -> None:
    wrong = [
        f"{module.relative_to(ROOT)}:{line}"
        for module in modules()
        if room_of(module) not in KEEPERS[package]
        for line, name in imports(module)
        if name.partition(".")[0] == package
    ]
    assert not wrong


def test_only_the_registry_names_the_quantizers() -> None:
    classes = {kind.quantizer.__name__ for kind in VECTOR_KINDS.values()}
    assert len(classes) == 4
    wrong = [
        f"{module.relative_to(ROOT)}:{line}: {name}"
        for module in modules()
        if QUANTIZERS not in module.parents and module != QUANTIZER_REGISTRY
        for line, name in names(module)
        if name in classes
    ]
    assert not wrong


def test_only_the_registries_name_a_kind_of_index() -> None:
    """All others ask the registries. The families have packages of their own, and the modules that search for vectors
    and for texts are about one question, not one kind."""
    own = {PACKAGE / room / family for room in ("index", "jobs") for family in FAMILIES}
    own |= {PACKAGE / "jobs" / name for name in ("knn_join", "near_duplicates", "tune")}
    own |= {PACKAGE / "query" / "search", PACKAGE / "query" / "text"}
    own.add(PACKAGE / "testing")
    registries = {PACKAGE / room / "registry.py" for room in ("index", "jobs")}
    # They export the options of every type, and the queries of text searches.
    registries |= {PACKAGE / "__init__.py", PACKAGE / "text.py"}
    banned = tuple(f"pennon.{room}.{family}." for room in ("index", "jobs") for family in FAMILIES)
    wrong = [
        f"{module.relative_to(ROOT)}:{line}: {name}"
        for module in modules()
        if module not in registries and not own & set(module.parents)
        for line, name in imports(module)
        if name.startswith(banned)
    ]
    assert not wrong


def test_source_is_written_in_plain_words_and_names() -> None:
    words = "|".join([*UNUSUAL_WORDS, *LISTED_WORDS]).replace(" ", "[ _]")
    pattern = rf"(?i)(?<![a-z])({words})(?![a-z])"
    generated = GENERATED.relative_to(ROOT).as_posix()
    assert not [line for line in mentions(pattern, under="src/") if not line.startswith(generated)]


# Words that readers of the field stumble over. Packages, drafts and papers are published, so that pages may have that.
READ_PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "docs/", "bench/", ".github/")
UNUSUAL = (
    "said|told|says|tells|anew|stock|neighbours?|colours?|labelled|strange|sound",
    "vouch(es|ed)?|carr(y|ies|ied|ying)|so many|so few|for want of|stands? (in|on|for|beside|behind)",
)


@pytest.mark.parametrize("words", UNUSUAL, ids=("verbs", "phrases"))
def test_pages_are_written_in_plain_words(words: str) -> None:
    pattern = rf"(?i)(?<![\w`_-])({words})(?![\w`_-])"
    assert not [found for page in READ_PAGES for found in mentions(pattern, under=page)]


def test_messages_are_written_in_plain_words() -> None:
    """Texts of errors, plans and help pages: strings with a space in them, and what click shows of a command."""
    found = re.compile(rf"(?i)\b({'|'.join(UNUSUAL)}|publish(es|ed)?)\b")
    wrong = [
        f"{module.relative_to(ROOT)}:{line}: {text}"
        for module in modules()
        for line, text in _messages(module)
        if found.search(text)
    ]
    assert not wrong


def _messages(module: Path) -> Iterator[tuple[int, str]]:
    documented = (node for node in nodes(module) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef))
    firsts = (node.body[0] for node in documented if node.body)
    docs = {id(first.value) for first in firsts if isinstance(first, ast.Expr)}
    shown = room_of(module) == "cli"
    for node in nodes(module):
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and " " in text and (shown or id(node) not in docs):
            yield getattr(node, "lineno", 0), text


def test_no_file_names_a_package_registry() -> None:
    assert not mentions(r"py(thon)?(pi\.org|hosted\.org)|npmjs\.(org|com)|--(extra-)?index-url [^-]")


@pytest.mark.parametrize("lock", LOCK_FILES)
def test_a_lock_file_holds_pins_and_hashes_only(lock: str) -> None:
    text = (ROOT / lock).read_text("utf-8")
    assert "/" not in text
    assert all("--hash=sha256:" in entry for entry in re.split(r"\n(?=\w)", re.sub(r"(?m)^#.*\n", "", text)))


def test_no_file_names_a_path_of_one_machine() -> None:
    assert not mentions(r"(?<![\w.~/*-])/(work|root|home|Users)/\w")
    assert not mentions(r"(?<![\w.~/*-])/tmp/", under="src/")


def test_the_lock_file_satisfies_what_is_declared() -> None:
    locked = pins("requirements.lock")
    for requirement in declared():
        if requirement.name != "pennon":
            assert requirement.specifier.contains(locked[canonicalize_name(requirement.name)]), requirement


def test_one_version_of_the_build_backend() -> None:
    assert pins("requirements-build.lock")["setuptools"] == pins("requirements.lock")["setuptools"]


def test_the_protobuf_runtime_is_never_older_than_the_generated_code() -> None:
    generated = re.search(r"# Protobuf Python Version: (\S+)", (GENERATED / "lance_pb2.py").read_text("utf-8"))
    assert generated
    (runtime,) = (requirement for requirement in declared() if requirement.name == "protobuf")
    (lowest,) = (Version(bound.version) for bound in runtime.specifier if bound.operator == ">=")
    assert lowest >= Version(generated[1])


def test_links_between_pages_lead_somewhere() -> None:
    broken = [
        f"{name}: {target}"
        for name, text in tracked_text().items()
        if name.endswith(".md")
        for target in re.findall(r"(?:\]\(|src(?:set)?=\")([^)\"#\s]+)", text)
        if "://" not in target and not (ROOT / name).parent.joinpath(target).exists()
    ]
    assert not broken
