"""Every rule has a test and every test names rules that exist; and the scanner that says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.peers import client_http_vectors, client_vectors, server_http_vectors
from tests.lab.peers import vectors as server_vectors
from tests.trace import MAX_WORDS, ROOT, Trace, main, report, trace, vectors


@pytest.fixture(scope="module")
def found() -> Trace:
    return trace(ROOT / "spec", ROOT / "tests")


def test_every_rule_has_a_test_and_every_named_rule_exists(found: Trace) -> None:
    assert found.problems == []


def test_no_family_of_rules_is_missing_from_the_table_of_the_specification(found: Trace) -> None:
    table = (ROOT / "spec" / "README.md").read_text()
    families = {rule.partition("-")[0] for rule in found.rules}
    assert families
    assert {family for family in families if f"`{family}`" not in table} == set()


def test_make_trace_prints_the_rules_and_tells_by_its_exit_code_whether_all_is_well(
    found: Trace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for problems, code in (([], 0), (["A-01 has no test"], 1)):
        some = Trace(found.rules, problems)
        monkeypatch.setattr("tests.trace.trace", lambda spec, tests, some=some: some)
        assert main() == code
        assert capsys.readouterr().out == report(some) + "\n"


def test_every_conversation_that_proves_a_rule_is_replayed() -> None:
    folders = {
        "": server_vectors,
        "http/": server_http_vectors,
        "client/": client_vectors,
        "client/http/": client_http_vectors,
    }
    replayed = {
        f"spec/vectors/{folder}{each.file}.jsonl: {each.name}"
        for folder, player in folders.items()
        for each in player.load()
    }
    assert {vector for vector, _ in vectors(ROOT / "spec")} == replayed


# -- the scanner on small inputs


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "spec").mkdir()
    (tmp_path / "tests" / "inner").mkdir(parents=True)
    (tmp_path / "spec" / "a.md").write_text(
        "# Title\n\n**A-01** A rule.\n\nText with **A-99**.\n\n**A-02** Another;\n  **A-98**.\n"
    )
    return tmp_path


def found_in(project: Path, source: str, file: str = "test_x.py") -> dict[str, list[str]]:
    (project / "tests" / file).write_text("import pytest\n" + source)
    return trace(project / "spec", project / "tests").rules


X = "tests/test_x.py"


def test_rules_are_paragraphs_that_start_with_their_id(project: Path) -> None:
    assert trace(project / "spec", project / "tests").rules == {"A-01": [], "A-02": []}


def test_a_rule_with_too_many_words_is_a_problem(project: Path) -> None:
    page = project / "spec" / "long.md"
    page.write_text(f"**L-01**{' word' * MAX_WORDS}\n\n**L-100**{' word' * MAX_WORDS}\nword\n")
    problems = trace(project / "spec", project / "tests").problems
    assert f"L-100 has more than {MAX_WORDS} words: split it" in problems
    assert not any("L-01 has more" in problem for problem in problems)


def test_a_mark_may_name_several_rules_and_a_test_bear_several_marks(project: Path) -> None:
    source = (
        "@pytest.mark.rule('A-01', 'A-02')\n"
        "@pytest.mark.rule('A-01')\n"
        "def test_one(): ...\n"
        "@pytest.mark.rule('A-02')\n"
        "async def test_two(): ...\n"
    )
    assert found_in(project, source) == {
        "A-01": [f"{X}::test_one"],
        "A-02": [f"{X}::test_one", f"{X}::test_two"],
    }


def test_tests_are_found_in_folders_and_only_in_files_of_tests(project: Path) -> None:
    mark = "@pytest.mark.rule('A-01')\ndef test_it(): ...\n"
    (project / "tests" / "helper.py").write_text(mark)
    assert found_in(project, mark, "inner/test_y.py")["A-01"] == ["tests/inner/test_y.py::test_it"]


def test_what_is_no_test_proves_nothing(project: Path) -> None:
    source = (
        "@pytest.mark.rule('A-01')\ndef helper(): ...\n"
        "@pytest.mark.rule('A-01')\nclass Helper:\n    def test_it(self): ...\n"
        "def test_outer():\n    @pytest.mark.rule('A-01')\n    def test_inner(): ...\n"
        "@pytest.mark.parametrize('rule', ['A-01'])\ndef test_other_mark(rule): ...\n"
    )
    assert found_in(project, source)["A-01"] == []


def test_the_mark_of_a_class_counts_for_each_of_its_tests(project: Path) -> None:
    source = (
        "@pytest.mark.rule('A-01')\n"
        "class TestAll:\n"
        "    def test_one(self): ...\n"
        "    @pytest.mark.rule('A-02')\n"
        "    def test_two(self): ...\n"
        "    def helper(self): ...\n"
        "    class TestInner:\n"
        "        def test_three(self): ...\n"
    )
    assert found_in(project, source) == {
        "A-01": [
            f"{X}::TestAll::test_one",
            f"{X}::TestAll::test_two",
            f"{X}::TestAll::TestInner::test_three",
        ],
        "A-02": [f"{X}::TestAll::test_two"],
    }


@pytest.mark.parametrize(
    "pytestmark",
    [
        "pytestmark = pytest.mark.rule('A-01')",
        "pytestmark = [pytest.mark.slow, pytest.mark.rule('A-01')]",
        "pytestmark: object = pytest.mark.rule('A-01')",
    ],
)
def test_pytestmark_counts_for_all_that_stands_beside_it(project: Path, pytestmark: str) -> None:
    # Wherever it stands: pytest reads it when the module has been imported.
    tests = [f"{X}::test_one", f"{X}::TestTwo::test_it"]
    source = "def test_one(): ...\nclass TestTwo:\n    def test_it(self): ...\n"
    assert found_in(project, source + pytestmark + "\n")["A-01"] == tests
    assert found_in(project, pytestmark + "\n" + source)["A-01"] == tests
    in_class = (
        f"class TestTwo:\n    {pytestmark}\n    def test_it(self): ...\ndef test_one(): ...\n"
    )
    assert found_in(project, in_class)["A-01"] == [f"{X}::TestTwo::test_it"]


def test_a_test_made_by_a_call_is_found_by_its_name(project: Path) -> None:
    source = (
        "TestMachine = pytest.mark.rule('A-01')(Machine.TestCase)\n"
        "Other = pytest.mark.rule('A-02')(Machine.TestCase)\n"
        "a = b, c = 1, 2\nx.y = 3\n"
    )
    assert found_in(project, source) == {"A-01": [f"{X}::TestMachine"], "A-02": []}


def test_the_marks_of_a_parameter_count(project: Path) -> None:
    source = (
        "from pytest import mark\n"
        "@pytest.mark.parametrize('x', [1, pytest.param(2, marks=mark.rule('A-02'))])\n"
        "def test_one(x): ...\n"
    )
    assert found_in(project, source)["A-02"] == [f"{X}::test_one"]


def test_a_vector_proves_the_rules_that_its_header_names(project: Path) -> None:
    folder = project / "spec" / "vectors" / "client"
    folder.mkdir(parents=True)
    (folder / "calls.jsonl").write_text(
        '{"name":"one","rules":["A-01","C-01"]}\n{"in":"{}"}\n{"name":"two","rules":["A-01"]}\n'
    )
    found = trace(project / "spec", project / "tests")
    file = "spec/vectors/client/calls.jsonl"
    assert found.rules["A-01"] == [f"{file}: one", f"{file}: two"]
    assert f"{file}: one names C-01, which no rule is called" in found.problems


def test_what_is_wrong_is_told(project: Path) -> None:
    (project / "spec" / "b.md").write_text("**A-01** Again.\n\n**B-01** Untested.\n")
    found_in(
        project,
        "RULE = 'A-01'\n"
        "@pytest.mark.rule(RULE)\ndef test_one(): ...\n"
        "@pytest.mark.rule('C-01', 'A-02')\ndef test_two(): ...\n"
        "@pytest.mark.rule('A-01')\ndef test_three(): ...\n",
    )
    found = trace(project / "spec", project / "tests")
    assert found.problems == [
        "b.md states A-01 a second time",
        f"{X}::test_one names a rule by RULE: write the id itself",
        f"{X}::test_two names C-01, which no rule is called",
        "B-01 has no test",
    ]
    assert report(found).splitlines() == [
        "A-01",
        f"    {X}::test_three",
        "A-02",
        f"    {X}::test_two",
        "B-01",
        "",
        "3 rules, 2 tests and vectors that name one",
        "problem: b.md states A-01 a second time",
        f"problem: {X}::test_one names a rule by RULE: write the id itself",
        f"problem: {X}::test_two names C-01, which no rule is called",
        "problem: B-01 has no test",
    ]
