"""Names: those in backticks in documents and docstrings exist, and no public class shares one.

A span in backticks is checked if it looks like one of our names:

- a path: it ends as a file of ours does (`.py`, `.md`, `.json`), or in `/` after a folder of ours;
- a variable of the configuration: it begins with `FOUNDATION_RT_`;
- an attribute: a dotted name that begins with one of our classes, modules or instances;
- any other name: an identifier, dotted or not, with or without a call's parentheses.

A path has to exist. An attribute has to be one of its class or module, bases included. Each part
of any other name has to occur in the code as an identifier, or within a string that has no spaces,
as the members of messages do. An example in a page defines the names in it. The names of others
that no code of ours has are listed below.
"""

from __future__ import annotations

import ast
import builtins
import keyword
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from attrs import define, field

from foundation_rt.apps.gateway.settings import SECTION as GATEWAY_SECTION
from foundation_rt.apps.gateway.settings import GatewaySettings
from foundation_rt.apps.host.settings import SECTION as HOST_SECTION
from foundation_rt.apps.host.settings import HostSettings
from foundation_rt.apps.task_server.settings import SECTION, TaskServerSettings
from foundation_rt.base.config.loading import settings, variable_name
from foundation_rt.base.config.sections import config_with
from foundation_rt.base.logs.redaction import DEFAULT_REDACT_KEYS
from tests.trace import ROOT

OTHERS = {
    "MCP, HTTP, JSON Schema": "ClientCapabilities ServerCapabilities Implementation DetailedTask "
    "endTurn stopSequence toolUse Authorization BEARER ETag Host JWT Origin NaN Referer mailto "
    "http.disconnect",
    "the environment of other programs": "ALL_PROXY HTTPS_PROXY NO_PROXY NO_COLOR PGPASSWORD "
    "DATABASE_URL nohup ip_hash",
    "other languages and libraries": "Infinity __post_init__ __class__ ack_sync "
    "publish_async fetch annotated_types Parameters png language fsync sync_interval "
    "synchronous_commit unnest queued json_each user_version",
    "examples of redaction and of conversion": "APIKey APIKey2 accessToken apikey authorName KEY "
    "ShopSettings compass keyboard monkey passenger passwords pinned spinner token2 tokenize days "
    "place.city example.com",
    "parts of names": "E0xx E1xx E2xx E3xx E4xx _ms _timeout FOUNDATION_RT_X",
    "names that the code puts together": "SESSION_OPENED SESSION_CLOSED foundation_rt.run_id "
    "foundation_rt.correlation_id foundation_rt_calls_total foundation_rt_rejections_total "
    "foundation_rt_slots foundation_rt_slots_in_use foundation_rt_event_loop_delay_seconds "
    "foundation_rt_resident_memory_bytes",
}
"""Names that stand in no code of ours, by where they come from."""

USERS_FILES = {
    "FILE.py",
    "tools.py",
    "test_tools.py",
    "app.py",
    "office.py",
    "hotel.py",
    "mcp.json",
    ".mcp.json",
}
USERS_FILES |= {"claude_desktop_config.json", "mcp_config.json", "package-lock.json"}
USERS_FILES |= {"manifest.json", "server.json", "requirements.txt"}
USERS_FILES |= {"settings.json", "config.toml", "SKILL.md", "forms.md", "email.md"}
"""Files of the people who use the runtime."""

INSTANCES = {
    "ctx": ("ToolContext",),
    "server": ("Server", "ServerDescription"),
    "client": ("Client", "BlockingClient", "TestClient"),
}
"""Names that examples give to instances of our classes."""

SPAN = re.compile(r"(`+)([^`]+)\1")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*(\(.*\))?", re.ASCII | re.DOTALL)
PATH = re.compile(r"[\w.-]+(/[\w.*-]+)*(\.(py|md|toml|jsonl?|mjs)|/)", re.ASCII)
WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)


@define
class Code:
    """The names in some files of code.

    Attributes:
        words: every identifier, and every word in a string without spaces.
        classes: the members of each class, by its name; classes of one name are taken together.
        bases: the names of the bases of each class.
        modules: the names that each module defines, by its last part and by its dotted path.
    """

    words: set[str] = field(factory=set)
    classes: dict[str, set[str]] = field(factory=dict)
    bases: dict[str, set[str]] = field(factory=dict)
    modules: dict[str, set[str]] = field(factory=dict)

    def add(self, path: Path) -> None:
        file = read_file(path)
        parts = path.relative_to(ROOT).with_suffix("").parts
        defined = file.defined
        if parts[-1] == "__init__":
            parts = parts[:-1]
            defined = defined | {each.stem for each in path.parent.iterdir()}
        self.words.update(file.words, parts)
        for start in range(len(parts)):
            self.modules.setdefault(".".join(parts[start:]), set()).update(defined)
        for name, members, bases in file.classes:
            self.classes.setdefault(name, set()).update(members)
            self.bases.setdefault(name, set()).update(bases)

    def members(self, name: str) -> set[str]:
        """Return the members of a class, with those of its bases that are ours."""
        found = set(self.classes[name])
        for base in self.bases[name] & self.classes.keys() - {name}:
            found |= self.members(base)
        return found


@define
class File:
    """The names in one file of code, and its docstrings.

    Attributes:
        words: every identifier, and every word in a string without spaces.
        defined: the names that it defines, and the keys of its tables: a package loads some of
            these when they are first used.
        classes: the name, the members and the names of the bases of each class.
        docstrings: the line and the text of each.
        public: the names of the classes that it offers to others.
    """

    words: set[str] = field(factory=set)
    defined: set[str] = field(factory=set)
    classes: list[tuple[str, set[str], set[str]]] = field(factory=list)
    docstrings: list[tuple[int, str]] = field(factory=list)
    public: list[str] = field(factory=list)

    def visit(self, node: ast.AST, owners: tuple[set[str], ...] = ()) -> None:
        """Add what a node and all below it name; `owners` have the members of its classes."""
        match node:
            case ast.Name():
                self.words.add(node.id)
                if isinstance(node.ctx, ast.Store):
                    self._define(node.id, owners)
                return
            case ast.Constant():
                self._add_text(node.value)
                return
            case ast.Expr(ast.Constant(str(text))):
                self.docstrings.append((node.lineno, text))
                return
            case ast.Attribute():
                self.words.add(node.attr)
                if isinstance(node.ctx, ast.Store):
                    for members in owners:
                        members.add(node.attr)
                self.visit(node.value, owners)
                return
            case ast.arg() | ast.keyword():
                self.words.add(node.arg or "")
            case ast.ClassDef():
                bases = (ast.unparse(base).partition("[")[0] for base in node.bases)
                self.words.add(node.name)
                own = set[str]()
                owners = (*owners, own)
                self.classes.append((node.name, own, {each.rpartition(".")[2] for each in bases}))
                self._define(node.name, owners)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self.words.add(node.name)
                self._define(node.name, owners)
            case ast.alias():
                self.words.update(node.name.split("."))
                self.defined.add((node.asname or node.name).partition(".")[0])
                return
            case ast.Dict():
                keys = (key.value for key in node.keys if isinstance(key, ast.Constant))
                self.defined.update(key for key in keys if isinstance(key, str))
        for value in vars(node).values():
            if isinstance(value, list):
                for each in value:
                    if isinstance(each, ast.AST):
                        self.visit(each, owners)
            elif isinstance(value, ast.AST):
                self.visit(value, owners)

    def _define(self, name: str, owners: tuple[set[str], ...]) -> None:
        self.defined.add(name)
        for members in owners:
            members.add(name)

    def _add_text(self, value: object) -> None:
        text = value.decode("latin-1") if isinstance(value, bytes) else value
        if isinstance(text, str) and " " not in text.strip():
            self.words.update(WORD.findall(text))


@cache
def read_file(path: Path) -> File:
    tree = ast.parse(path.read_bytes())
    file = File()
    file.visit(tree)
    classes = (each.name for each in tree.body if isinstance(each, ast.ClassDef))
    file.public = [name for name in classes if not name.startswith("_")]
    return file


def read_code(*folders: str) -> Code:
    code = Code()
    for folder in folders:
        files = (ROOT / folder).rglob("*.py*")  # with the stub of the public names
        for path in sorted(each for each in files if each.suffix in (".py", ".pyi")):
            if "node_modules" not in path.parts:
                code.add(path)
        code.words.update(path.stem for path in (ROOT / folder).rglob("*.js"))
    return code


FAMILIES = set(re.findall(r"`([A-Z]+)`", (ROOT / "spec" / "README.md").read_text("utf-8")))
SETTINGS = [
    key
    for key, _ in settings(
        config_with(
            {
                SECTION: TaskServerSettings,
                GATEWAY_SECTION: GatewaySettings,
                HOST_SECTION: HostSettings,
            }
        )
    )
]
KEYS = {".".join(key[:end]) for key in SETTINGS for end in range(1, len(key) + 1)}
PACKAGES = {path.parent.name for path in (ROOT / "foundation_rt").glob("*/__init__.py")}
VARIABLES = {variable_name(key) for key in SETTINGS}
ELSEWHERE = {word for words in OTHERS.values() for word in words.split()} | FAMILIES
OF_PYTHON = set(dir(builtins)) | sys.stdlib_module_names
ELSEWHERE |= OF_PYTHON | set(keyword.kwlist) | set(DEFAULT_REDACT_KEYS)


def problem_of(span: str, code: Code, near: Path, examples: set[str]) -> str | None:
    """Say why a span that looks like one of our names is none; None if it is one, or not ours."""
    if span.startswith("FOUNDATION_RT_") and WORD.fullmatch(span):
        known = span in VARIABLES or span in ELSEWHERE or span in code.words
        return None if known else "no variable is called so"
    if PATH.fullmatch(span):
        return _problem_of_path(span, near)
    if not NAME.fullmatch(span):
        return None
    name = span.partition("(")[0]
    if name in KEYS or name in ELSEWHERE:
        return None
    head, _, rest = name.partition(".")
    if rest and head in OF_PYTHON and head not in code.modules:
        return None
    if rest:
        missing = _problem_of_attribute(name, code)
        if missing is not None:
            return missing
    known = (code.words, examples, ELSEWHERE)
    unknown = [part for part in name.split(".") if not any(part in some for some in known)]
    return f"nothing is called {unknown[0]}" if unknown else None


def _problem_of_path(span: str, near: Path) -> str | None:
    name = span.rpartition("/")[2]
    if name in USERS_FILES or (span.endswith("/") and not _folder_of_ours(span)):
        return None
    places = (ROOT, ROOT / "foundation_rt", ROOT / "spec", ROOT / "spec" / "vectors", near)
    if any(True for place in places for _ in place.glob(span.rstrip("/"))):
        return None
    return "there is no such file"


def _folder_of_ours(span: str) -> bool:
    head = span.partition("/")[0]
    return any((ROOT / place / head).is_dir() for place in (".", "foundation_rt", "spec"))


def _problem_of_attribute(name: str, code: Code) -> str | None:
    parts = name.split(".")
    classes = (*INSTANCES.get(parts[0], ()), parts[0])
    known = [code.members(each) for each in classes if each in code.classes]
    known += [code.modules[each] for each in parts[:1] if each in PACKAGES]
    if known and not any(parts[1] in members for members in known):
        return f"{parts[0]} has no {parts[1]}"
    if parts[0] == "foundation_rt":
        module = next(
            (
                ".".join(parts[:end])
                for end in range(len(parts), 0, -1)
                if ".".join(parts[:end]) in code.modules
            ),
        )
        rest = parts[module.count(".") + 1 :]
        if rest and rest[0] not in code.modules[module]:
            return f"{module} has no {rest[0]}"
    return None


def spans(text: str) -> Iterator[str]:
    for found in SPAN.finditer(FENCED.sub("", text)):
        yield " ".join(found[2].split())


def problems_in_page(path: Path, code: Code) -> Iterator[str]:
    text = path.read_text("utf-8")
    examples = {word for block in FENCED.findall(text) for word in WORD.findall(block)}
    for span in spans(text):
        problem = problem_of(span, code, path.parent, examples)
        if problem:
            yield f"{path.relative_to(ROOT)}: `{span}`: {problem}"


def problems_in_docstrings(folder: str, code: Code) -> Iterator[str]:
    for path in sorted((ROOT / folder).rglob("*.py")):
        if "node_modules" in path.parts:
            continue
        for line, text in read_file(path).docstrings:
            for span in spans(text):
                problem = problem_of(span, code, path.parent, set())
                if problem:
                    place = f"{path.relative_to(ROOT)}:{line}"
                    yield f"{place}: `{span}`: {problem}"


_RELATIVE = re.compile(r"(What|How|Whether|Which|Who|Whose|Where|When|Why|That)\b")


@pytest.fixture(scope="module")
def ours() -> Code:
    return read_code("foundation_rt")


@pytest.fixture(scope="module")
def everything() -> Code:
    return read_code("foundation_rt", "tests", "bench")


def test_names_in_the_specification_and_the_readme_exist(ours: Code) -> None:
    folders = (ROOT / "spec", ROOT / "spec" / "guide")
    pages = [page for folder in folders for page in sorted(folder.glob("*.md"))]
    pages += [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    pages = [page for page in pages if not page.name.startswith("from-")]  # names of others
    assert [problem for page in pages for problem in problems_in_page(page, ours)] == []


def test_names_in_the_page_about_vectors_exist(everything: Code) -> None:
    page = ROOT / "spec" / "vectors" / "README.md"
    assert list(problems_in_page(page, everything)) == []


def test_names_in_docstrings_exist(ours: Code, everything: Code) -> None:
    assert list(problems_in_docstrings("foundation_rt", ours)) == []
    for folder in ("tests", "bench"):
        assert list(problems_in_docstrings(folder, everything)) == []


def test_docstrings_open_with_their_noun_or_verb() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text.splitlines()[0]}"
        for path in sorted((ROOT / "foundation_rt").rglob("*.py"))
        for line, text in read_file(path).docstrings
        if _RELATIVE.match(text.strip())
    ]
    assert found == []


def test_no_public_class_name_is_used_twice() -> None:
    places: dict[str, list[str]] = {}
    for path in sorted((ROOT / "foundation_rt").rglob("*.py")):
        for name in read_file(path).public:
            places.setdefault(name, []).append(str(path.relative_to(ROOT)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
