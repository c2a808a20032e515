"""Sources become one configuration, or one error with every problem."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import attrs
import fastjsonschema
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.base.config.http_sections import AddressRange, HttpSection
from foundation_rt.base.config.loading import (
    ConfigProblem,
    load_config,
    settings,
    to_mapping,
    variable_name,
)
from foundation_rt.base.config.settings import (
    AdminPolicy,
    LoggingSection,
    ServerConfig,
    ToolsSection,
)
from foundation_rt.base.config.types import (
    Choice,
    Flag,
    Integer,
    KeyName,
    Kind,
    Line,
    ListOf,
    Pattern,
    StoreUrl,
    VariableName,
)
from foundation_rt.errors import ConfigError, UsageError
from tests.lab.programs.program import run_source

SCHEMA = Path(__file__).parents[3] / "spec" / "schemas" / "config.schema.json"
SETTINGS = dict(settings())
validate_file = fastjsonschema.compile(json.loads(SCHEMA.read_text("utf-8")), use_default=False)
TOKEN_VARIABLE = ("tools", "admin_policy", "token_env_var")

Key = tuple[str, ...]


# Help


def tables(values: Mapping[Key, Any]) -> dict[str, Any]:
    """Return the nested tables that hold `values`."""
    result: dict[str, Any] = {}
    for (*sections, name), value in values.items():
        table = result
        for section in sections:
            table = table.setdefault(section, {})
        table[name] = value
    return result


def value_of(config: ServerConfig, key: Key) -> Any:
    value: Any = config
    for name in key:
        value = getattr(value, name)
    return value


def table_of(shown: dict[str, Any], sections: list[str]) -> dict[str, Any]:
    for section in sections:
        shown = shown[section]
    return shown


def problems_of(**sources: Any) -> tuple[ConfigProblem, ...]:
    with pytest.raises(ConfigError) as refusal:
        load_config(**sources)
    error = refusal.value
    assert str(error).splitlines() == [
        "the configuration is refused:",
        *(f"  {problem}" for problem in error.problems),
    ]
    return error.problems


def only_problem_of(**sources: Any) -> ConfigProblem:
    (problem,) = problems_of(**sources)
    return problem


def as_toml(values: Mapping[Key, Any]) -> str:
    lines = []
    for key, value in values.items():
        if value is not None:  # TOML has no null
            lines.append(f"{'.'.join(key)} = {json.dumps(value, ensure_ascii=False)}\n")
    return "".join(lines)


def as_environ(values: Mapping[Key, Any]) -> dict[str, str]:
    return {
        variable_name(key): value if isinstance(value, str) else json.dumps(value)
        for key, value in values.items()
        if value is not None
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("config")


PRINTABLE = st.characters(exclude_categories=("Cc", "Cs"))


def right_values(kind: Kind) -> st.SearchStrategy[Any]:
    match kind:
        case Integer():
            return st.integers(kind.minimum, kind.maximum)
        case Flag():
            return st.booleans()
        case Line():
            return st.text(PRINTABLE, min_size=1, max_size=kind.max_length)
        case Choice():
            return st.sampled_from([word for word in kind.words if word not in ("token", "scopes")])
        case AddressRange():
            return st.ip_addresses().map(str)
        case Pattern():
            strings = st.from_regex(kind.pattern, fullmatch=True, alphabet=PRINTABLE)
            if isinstance(kind, KeyName):
                # Its pattern takes a name without a letter or a digit; its check does not (LOG-07).
                strings = strings.filter(kind.accepts)
            return strings | st.none() if kind.optional else strings
        case ListOf():
            # Of the limits of tools no two may be of one tool.
            return st.lists(
                right_values(kind.item),
                max_size=3,
                unique_by=lambda item: item.rpartition("=")[0] or item,
            )
        case VariableName():
            return st.from_regex("[A-Za-z_][A-Za-z0-9_]*", fullmatch=True) | st.none()
        case StoreUrl():
            password = st.text(PRINTABLE, min_size=1).map(lambda text: quote(text, ""))
            urls = st.builds("{}://:{}@x/1".format, st.sampled_from(kind.schemes), password)
            return st.sampled_from(kind.words) | urls
    raise AssertionError(kind)


def wrong_values(kind: Kind) -> st.SearchStrategy[Any]:
    """Values that a file can hold and the setting does not accept."""
    number = st.sampled_from([-1, 2**41, 10**30, 1.5, 5.0])
    text = st.sampled_from(["", "5", " true", "INFO", "a\nb", "\x7f", "x" * 257])
    table = st.just({"a": 1})
    match kind:
        case Integer():
            return number | text | table | st.booleans() | st.just([1])
        case Flag():
            return number | text | table | st.sampled_from([0, 1, "true", "false", None])
        case Line():
            return number | table | st.booleans() | st.sampled_from(["", "a\tb", "x" * 257, None])
        case Choice():
            return number | text | table | st.booleans() | st.none()
        case Pattern():
            return number | table | st.booleans() | st.sampled_from(["", "\n", "Ä\x7f"])
        case ListOf():
            lists = st.sampled_from([[""], ["a", 1], ["a\n"], [["a"]], None])
            return number | text | table | lists
        case VariableName():
            return number | table | st.booleans() | st.sampled_from(["", "1A", "A-B", "Ä", "A\n"])
        case StoreUrl():
            return number | text | table | st.booleans()
    raise AssertionError(kind)


def wrong_texts(kind: Kind) -> st.SearchStrategy[str]:
    """Texts of environment variables that the setting does not accept."""
    match kind:
        case Integer():
            out_of_range = [str(kind.minimum - 1), str(kind.maximum + 1), "9" * 21, "9" * 5000]
            spelled = [
                *("", " 5", "5 ", "5\n", "5.0", "5e3", "0x10", "5_000", "٥", "+", "--5", "five"),
            ]
            return st.sampled_from(out_of_range + spelled)
        case Flag():
            return st.sampled_from(["", "2", "y", "t", "true ", "wahr", "01"])
        case Line():
            return st.sampled_from(["", "a\tb", "\udcff", "x" * 257])
        case Choice():
            return st.sampled_from(["", "INFO", "info ", "deny-all"])
        case Pattern():
            return st.sampled_from(["", "\n", "a\x7f", "\udcff"])
        case ListOf():
            broken = ["a,,b", ",", " ", "a\x7f", "[", '["a",]', "[1]", '[""]', '["\udcff"]']
            return st.sampled_from([*broken, "[" * 100_000])
        case VariableName():
            return st.sampled_from(["", "1A", "A-B", " A", "Ä"])
        case StoreUrl():
            return st.sampled_from(["", "elsewhere", f"{kind.schemes[0]}:", "ftp://x"])
    raise AssertionError(kind)


def some_settings(make: Any) -> st.SearchStrategy[dict[Key, Any]]:
    """Return some settings, each with a value out of `make(kind)`."""
    return st.fixed_dictionaries({}, optional={key: make(kind) for key, kind in SETTINGS.items()})


# Precedence


@pytest.mark.rule("CONF-01", "CONF-02")
def test_without_sources_there_are_defaults() -> None:
    assert load_config() == ServerConfig()


@pytest.mark.rule("CONF-02", "CONF-07")
def test_one_setting_from_each_source(folder: Path) -> None:
    file = folder / "one.toml"
    file.write_text(
        '[server]\nname = "file"\nversion = "2"\n[tools.admin_policy]\nmode = "token"\n'
    )
    config = load_config(
        code={"server": {"name": "code", "version": "1", "eof_grace_ms": 7}},
        file=file,
        environ={
            "FOUNDATION_RT_SERVER__NAME": "environment",
            "FOUNDATION_RT_TOOLS__ADMIN_POLICY__TOKEN_ENV_VAR": "T",
            "PATH": "/bin",
        },
    )
    assert (config.server.name, config.server.version) == ("environment", "2")
    assert (config.server.eof_grace_ms, config.server.shutdown_timeout_ms) == (7, 10_000)
    assert config.tools.admin_policy == AdminPolicy(mode="token", token_env_var="T")


@pytest.mark.rule("CONF-02", "CONF-08", "CONF-09", "CONF-10", "CONF-11", "CONF-12")
@given(
    code=some_settings(right_values),
    file=some_settings(right_values),
    environ=some_settings(right_values),
    ending=st.sampled_from([".toml", ".json"]),
)
def test_any_mixture_of_sources_resolves_by_precedence(
    folder: Path,
    code: dict[Key, Any],
    file: dict[Key, Any],
    environ: dict[Key, Any],
    ending: str,
) -> None:
    path = folder / f"mixture{ending}"
    path.write_text(as_toml(file) if ending == ".toml" else json.dumps(tables(file)), "utf-8")
    config = load_config(code=tables(code), file=path, environ=as_environ(environ))
    if ending == ".toml":
        file = {key: value for key, value in file.items() if value is not None}
    environ = {key: value for key, value in environ.items() if value is not None}
    expected = {key: value_of(ServerConfig(), key) for key in SETTINGS} | code | file | environ
    for key, value in expected.items():
        assert value_of(config, key) == (tuple(value) if isinstance(value, list) else value)


@pytest.mark.rule("CONF-02")
def test_overridden_value_is_not_checked(folder: Path) -> None:
    file = folder / "overridden.json"
    file.write_text('{"tools": {"default_timeout_ms": "5 s"}}')
    environ = {"FOUNDATION_RT_TOOLS__DEFAULT_TIMEOUT_MS": "5000"}
    code = {"tools": {"default_timeout_ms": {"a": 1}}}
    assert load_config(code=code, file=file, environ=environ).tools.default_timeout_ms == 5000


@pytest.mark.rule("CONF-02")
def test_sources_are_not_changed() -> None:
    code = {"tools": {"admin_policy": {"mode": "deny_all"}}, "logging": {"redact_keys": ["a"]}}
    before = json.dumps(code)
    environ = {"FOUNDATION_RT_TOOLS__ADMIN_POLICY__MODE": "local_stdio_only"}
    load_config(code=code, environ=environ)
    assert json.dumps(code) == before


# Unknown names


@pytest.mark.rule("CONF-03", "CONF-05")
@pytest.mark.parametrize(
    ("code", "key", "nearest"),
    [
        ({"tools": {"timeout_ms": 5}}, "tools.timeout_ms", "tools.default_timeout_ms"),
        ({"tools": {"maxPayloadBytes": 5}}, "tools.maxPayloadBytes", "tools.max_payload_bytes"),
        ({"tool": {"a": {"b": 1}}}, "tool", "tools"),
        ({"Logging": {}}, "Logging", "logging"),
        ({"max_line_bytes": 5}, "max_line_bytes", "transport.max_line_bytes"),
        ({"tools": {"admin_policy": {"mod": 1}}}, "tools.admin_policy.mod", "tools.admin_policy"),
        ({"tools": {"count": 1}}, "tools.count", "tools"),
        ({"logging": {"a\nb": 1}}, "logging.a\nb", "logging"),
        ({5: 1}, "5", ""),
        ({"x" * 100_000: 1}, "x" * 100, ""),
    ],
)
def test_an_unknown_key_names_the_nearest(code: Any, key: str, nearest: str) -> None:
    problem = only_problem_of(code=code)
    assert (problem.key, problem.value, problem.source) == (key, "[REDACTED]", "code")
    assert problem.expected.startswith(f"a known key; the nearest is {nearest}")
    assert "\n" not in str(problem)


@pytest.mark.rule("CONF-28")
def test_many_unknown_keys_are_not_all_searched_for() -> None:
    with pytest.raises(ConfigError) as refusal:
        load_config(
            code={f"key_{number}": 1 for number in range(100)}, environ={"FOUNDATION_RT_A__B": "1"}
        )
    expected = [each.expected for each in refusal.value.problems]
    assert len(expected) == 101
    assert sum("; the nearest is" in each for each in expected) == 20


@pytest.mark.rule("CONF-03", "CONF-05", "CONF-07")
@pytest.mark.parametrize(
    ("name", "key", "nearest"),
    [
        ("TOOLS__TIMEOUT_MS", "tools.timeout_ms", "TOOLS__DEFAULT_TIMEOUT_MS"),
        ("TOOLS__ADMIN_POLICY", "tools.admin_policy", "TOOLS__ADMIN_POLICY__MODE"),
        ("_SERVER__NAME", "_server.name", "SERVER__NAME"),
        ("logging__level", "logging.level", "LOGGING__LEVEL"),
        ("SERVER__NAME__", "server.name.", "SERVER__NAME"),
    ],
)
def test_an_unknown_variable_names_the_nearest(name: str, key: str, nearest: str) -> None:
    problem = only_problem_of(environ={f"FOUNDATION_RT_{name}": "hunter2"})
    assert problem == ConfigProblem(
        key,
        "[REDACTED]",
        f"a known variable; the nearest is FOUNDATION_RT_{nearest}",
        f"environment FOUNDATION_RT_{name}",
    )


@pytest.mark.rule("CONF-07")
def test_the_variables_of_others_are_ignored() -> None:
    environ = {"FOUNDATION_RT_X": "1", "FOUNDATION_RT__X": "1", "foundation_rt_tools__x": "1"}
    assert load_config(environ=environ) == ServerConfig()


# Problems


@pytest.mark.rule("CONF-22", "CONF-04", "CONF-06")
@given(data=st.data(), source=st.sampled_from(["code", "file", "environment"]))
def test_every_wrong_value_is_reported_with_its_key(
    folder: Path, data: st.DataObject, source: str
) -> None:
    wrong = data.draw(some_settings(wrong_texts if source == "environment" else wrong_values))
    right = data.draw(some_settings(right_values))
    values = {**right, **wrong}
    file = folder / "wrong.json"
    file.write_text(json.dumps(tables(values)), "utf-8")
    sources: dict[str, Any] = {
        "code": {"code": tables(values)},
        "file": {"file": file},
        "environment": {"environ": as_environ(values)},
    }[source]
    if not wrong:
        assert isinstance(load_config(**sources), ServerConfig)
        return
    problems = problems_of(**sources)
    assert {problem.key for problem in problems} == {".".join(key) for key in wrong}
    assert len(problems) == len(wrong)
    for problem in problems:
        key = tuple(problem.key.split("."))
        assert problem.expected == SETTINGS[key].expected
        if source != "environment":  # whose text may have been read as an integer or a list
            is_hidden = SETTINGS[key].is_secret and wrong[key] is not None
            assert problem.value == ("[REDACTED]" if is_hidden else wrong[key])
        assert problem.source == {
            "code": "code",
            "file": f"file {file}",
            "environment": f"environment {variable_name(key)}",
        }.get(source)


@pytest.mark.rule("CONF-03", "CONF-04", "CONF-13", "CONF-16")
def test_one_error_has_the_problems_of_all_sources() -> None:
    problems = problems_of(
        code={"server": {"name": 5}, "tools": {"timeout": 1}, "aacp": 7},
        file="no/such/file.toml",
        environ={
            "FOUNDATION_RT_TRANSPORT__MAX_LINE_BYTES": "1023",
            "FOUNDATION_RT_LOGING__LEVEL": "info",
        },
    )
    assert [str(problem) for problem in problems] == [
        "aacp = 7 (code): expected a table",
        "file no/such/file.toml: expected an existing file; there is none by that name",
        "loging.level = [REDACTED] (environment FOUNDATION_RT_LOGING__LEVEL): "
        "expected a known variable; the nearest is FOUNDATION_RT_LOGGING__LEVEL",
        "server.name = 5 (code): "
        "expected a string of 1 to 256 characters without control characters",
        "tools.timeout = [REDACTED] (code): "
        "expected a known key; the nearest is tools.default_timeout_ms",
        "transport.max_line_bytes = 1023 (environment FOUNDATION_RT_TRANSPORT__MAX_LINE_BYTES): "
        "expected an integer from 1024 to 1099511627776 (bytes)",
    ]


@pytest.mark.rule("CONF-04")
def test_config_error_is_a_usage_error_and_can_be_pickled() -> None:
    with pytest.raises(UsageError) as refusal:
        load_config(code={"server": 1})
    assert refusal.value.__context__ is None
    again = pickle.loads(pickle.dumps(refusal.value))
    assert (str(again), again.problems) == (str(refusal.value), refusal.value.problems)


@pytest.mark.rule("CONF-23")
@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "None"),
        (True, "True"),
        (1.5, "1.5"),
        ("a\nb\x1b", r"'a\nb\x1b'"),
        ({"password": "hunter2"}, "{...}"),
        ([{"password": "hunter2"}], "[{...}]"),
        (["a", [["hunter2"]]], "['a', [[...]]]"),
        (int("9" * 4000), "999999999999999999...9999999999999999999"),
        pytest.param(2**20_000, "an integer too long to show", id="huge"),
    ],
)
def test_a_wrong_value_is_shown_on_one_short_line(value: Any, shown: str) -> None:
    problem = only_problem_of(code={"tools": {"default_timeout_ms": value}})
    assert str(problem).startswith(
        f"tools.default_timeout_ms = {shown} (code): expected an integer"
    )
    assert "hunter2" not in repr(problem)


@pytest.mark.rule("CONF-23")
def test_a_long_text_is_cut() -> None:
    problem = only_problem_of(code={"logging": {"level": "x" * 100_000}})
    assert len(str(problem)) < 250


@pytest.mark.rule("CONF-05")
@pytest.mark.parametrize("token", ["hunter2!", ["hunter2"], {"hunter2": 1}])
def test_a_token_in_place_of_its_variable_is_not_shown(token: Any) -> None:
    problem = only_problem_of(code=tables({TOKEN_VARIABLE: token}))
    assert problem.value == "[REDACTED]"
    assert "hunter2" not in str(problem)


@pytest.mark.rule("CONF-04", "CONF-18")
@pytest.mark.parametrize("policy", [{"mode": "token"}, {"mode": "token", "token_env_var": None}])
def test_mode_token_without_a_variable(policy: dict[str, Any]) -> None:
    problem = only_problem_of(code={"tools": {"admin_policy": policy}})
    assert str(problem) == (
        "tools.admin_policy.token_env_var = None (code): "
        'expected the name of a variable, because mode is "token"'
    )


@pytest.mark.rule("ADMIN-12")
def test_mode_scopes_without_scopes() -> None:
    problem = only_problem_of(code={"tools": {"admin_policy": {"mode": "scopes"}}})
    assert str(problem).endswith('expected at least one scope, because mode is "scopes"')
    assert problem.key == "tools.admin_policy.scopes"


@pytest.mark.rule("CONF-18")
def test_problem_of_mode_token_names_the_environment() -> None:
    environ = {"FOUNDATION_RT_TOOLS__ADMIN_POLICY__MODE": "token"}
    problem = only_problem_of(environ=environ, code={"tools": {"admin_policy": {}}})
    assert problem.source == "environment FOUNDATION_RT_TOOLS__ADMIN_POLICY__MODE"


@pytest.mark.rule("CONF-16")
@pytest.mark.parametrize("value", [None, 5, "x", [], [{}], True])
def test_section_that_is_no_table_is_refused(value: Any) -> None:
    problem = only_problem_of(
        code={"tools": {"admin_policy": value}},
        environ={"FOUNDATION_RT_TOOLS__ADMIN_POLICY__MODE": "deny_all"},
    )
    assert (problem.key, problem.value) == ("tools.admin_policy", value)
    assert (problem.expected, problem.source) == ("a table", "code")


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(-1e9, 1e9) | st.text(max_size=5)
LISTS = st.lists(SCALARS, max_size=3)
NAMES = st.sampled_from([name for key in SETTINGS for name in key]) | st.text(max_size=5)


def documents(depth: int) -> st.SearchStrategy[dict[str, Any]]:
    inner = documents(depth - 1) if depth else st.just({})
    return st.dictionaries(NAMES, SCALARS | LISTS | inner, max_size=4)


@pytest.mark.rule("CONF-03", "CONF-04", "CONF-06")
@given(
    document=documents(3),
    environ=st.dictionaries(
        st.sampled_from([variable_name(key) for key in SETTINGS])
        | st.text(max_size=9).map("FOUNDATION_RT_{}__".format),
        st.text(st.characters(), max_size=9),
        max_size=4,
    ),
)
def test_any_sources_give_a_configuration_or_a_config_error(
    document: dict[str, Any], environ: dict[str, str]
) -> None:
    try:
        assert isinstance(load_config(code=document, environ=environ), ServerConfig)
    except ConfigError as error:
        assert error.problems
        str(error).encode()


# Types


@pytest.mark.rule("CONF-06")
@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('tools.default_timeout_ms = "5"', "tools.default_timeout_ms"),
        ("tools.default_timeout_ms = 5.0", "tools.default_timeout_ms"),
        ("tools.default_timeout_ms = true", "tools.default_timeout_ms"),
        ("tools.default_timeout_ms = 2026-01-01", "tools.default_timeout_ms"),
        ("tools.default_timeout_ms = 0x" + "f" * 9000, "tools.default_timeout_ms"),
        ("tools.expose_error_details = 1", "tools.expose_error_details"),
        ('tools.expose_error_details = "true"', "tools.expose_error_details"),
        ("server.version = 1.0", "server.version"),
        ("logging.redact_keys = 'a,b'", "logging.redact_keys"),
        ("logging.redact_keys = [1]", "logging.redact_keys"),
        ("logging.level = true", "logging.level"),
    ],
)
def test_a_file_is_strictly_typed(folder: Path, text: str, key: str) -> None:
    file = folder / "typed.toml"
    file.write_text(text)
    problem = only_problem_of(file=file)
    assert (problem.key, problem.source) == (key, f"file {file}")


INTEGER = "tools.cancel_grace_ms"
BOOLEAN = "tools.expose_error_details"
LIST = "logging.redact_keys"


def spellings(*words: str) -> list[str]:
    return sorted({*words, *map(str.upper, words), *map(str.title, words)})


@pytest.mark.rule("CONF-08", "CONF-09", "CONF-10")
@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        *((INTEGER, text, value) for text, value in {"0": 0, "+5": 5, "-0": 0, "007": 7}.items()),
        *((BOOLEAN, word, True) for word in spellings("true", "1", "yes", "on")),
        *((BOOLEAN, word, False) for word in spellings("false", "0", "no", "off")),
        (LIST, "", ()),
        (LIST, "iban", ("iban",)),
        (LIST, "iban, card number ,pin", ("iban", "card number", "pin")),
        (LIST, "[]", ()),
        (LIST, '["a,b", "[d", " c "]', ("a,b", "[d", " c ")),
    ],
)
def test_text_in_the_environment_is_read_by_its_type(key: str, text: str, value: Any) -> None:
    path = tuple(key.split("."))
    assert value_of(load_config(environ={variable_name(path): text}), path) == value


@pytest.mark.rule("CONF-08", "CONF-09", "CONF-10")
@pytest.mark.parametrize(
    ("key", "text"),
    [
        *((INTEGER, text) for text in ("-5", " 5", "5 ", "5\n", "1_000", "5.0", "1e3", "٥", "")),
        (INTEGER, "9" * 21),
        *((BOOLEAN, text) for text in ("", "y", "2", " true", "enabled")),
        *((LIST, text) for text in ("a,,b", ",", " ", "[a]", "[1]", '["a"')),
        pytest.param(LIST, "[" * 100_000, id="deep list"),
    ],
)
def test_wrong_text_in_the_environment_is_refused(key: str, text: str) -> None:
    path = tuple(key.split("."))
    problem = only_problem_of(environ={variable_name(path): text})
    assert (problem.key, problem.expected) == (key, SETTINGS[path].expected)


@pytest.mark.rule("CONF-11")
def test_other_texts_are_used_unchanged() -> None:
    name = " [5] true, Ærlig "
    assert load_config(environ={"FOUNDATION_RT_SERVER__NAME": name}).server.name == name
    for variable in ("SERVER__NAME", "LOGGING__LEVEL", "TOOLS__ADMIN_POLICY__TOKEN_ENV_VAR"):
        assert problems_of(environ={f"FOUNDATION_RT_{variable}": ""})
    assert problems_of(environ={"FOUNDATION_RT_LOGGING__LEVEL": "INFO"})


# The published schema


@pytest.mark.rule("CONF-19")
@given(values=some_settings(right_values))
def test_a_configuration_loads_from_its_own_data(folder: Path, values: dict[Key, Any]) -> None:
    config = load_config(code=tables(values))
    shown = to_mapping(config)
    flat = {key: value_of(config, key) for key in SETTINGS}
    for (*sections, name), kind in SETTINGS.items():
        if kind.is_secret and (value := value_of(config, (*sections, name))):
            table = table_of(shown, sections)
            assert table[name] == "[REDACTED]"
            table[name] = value
    assert shown == tables(flat)
    assert load_config(code=shown) == config
    assert load_config(environ=as_environ(flat)) == config
    for ending, text in ((".json", orjson.dumps(shown).decode()), (".toml", as_toml(flat))):
        file = folder / f"own{ending}"
        file.write_text(text, "utf-8")
        assert load_config(file=file) == config


@pytest.mark.rule("CONF-05", "CONF-19")
def test_the_effective_configuration_shows_all_but_secrets() -> None:
    policy = AdminPolicy(mode="token", token_env_var="hunter2")
    config = ServerConfig(
        tools=ToolsSection(admin_policy=policy),
        logging=LoggingSection(redact_keys=("iban",)),
        http=HttpSection(api_keys=("hunter2hunter2hunter2",)),
    )
    shown = to_mapping(config)
    assert shown["tools"]["admin_policy"] == {
        "mode": "token",
        "scopes": (),
        "token_env_var": "[REDACTED]",
    }
    assert shown["logging"]["redact_keys"] == ("iban",)
    assert shown["http"]["api_keys"] == "[REDACTED]"
    assert to_mapping(ServerConfig())["http"]["api_keys"] == ()
    assert list(shown) == [section.name for section in attrs.fields(ServerConfig)]
    assert to_mapping(ServerConfig())["tools"]["admin_policy"]["token_env_var"] is None


def has_integral_float(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(has_integral_float, value.values()))
    return isinstance(value, float) and value.is_integer()


@pytest.mark.rule("CONF-20")
@given(
    document=some_settings(right_values).map(tables)
    | some_settings(lambda kind: right_values(kind) | wrong_values(kind)).map(tables)
    | documents(3)
)
def test_the_schema_and_the_loader_agree(document: dict[str, Any]) -> None:
    if any(map(has_integral_float, document.values())):
        return
    try:
        validate_file(document)
    except fastjsonschema.JsonSchemaException:
        assert problems_of(code=document)
    else:
        assert isinstance(load_config(code=document), ServerConfig)


@pytest.mark.rule("CONF-21")
def test_start_imports_only_the_loaders_of_its_sources(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text("")
    program = (
        "import sys; from foundation_rt.base.config.loading import load_config;"
        "load_config(environ={'FOUNDATION_RT_SERVER__NAME': 'x'});"
        "print('tomli' in sys.modules, 'difflib' in sys.modules);"
        f"load_config(file={str(file)!r}); print('tomli' in sys.modules)"
    )
    output = run_source(program)
    assert output.stdout.split() == ["False", "False", "True"]
