"""Sections of configuration that an application adds to those of the runtime."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import fastjsonschema
import pytest
from attrs import define, field, frozen

from foundation_rt import ConfigError, RegistrationError, Server, ServerOptions, UsageError
from foundation_rt.base.config.http_sections import HttpSection
from foundation_rt.base.config.sections import (
    Choice,
    Integer,
    Line,
    ListOf,
    Pattern,
    SettingError,
    Settings,
    StoreUrl,
    byte_count,
    flag,
    group,
    milliseconds,
    setting,
)
from foundation_rt.base.config.settings import ServerConfig, ToolsSection
from foundation_rt.testing import TestClient
from tests.lab.clock.virtual_loop import run_bounded
from tests.lab.programs.program import run_source
from tests.lab.servers import fork_server

SCHEMA = Path(__file__).parents[3] / "spec" / "schemas" / "config.schema.json"
TAG = Pattern("[a-z]+", "lower-case letters")


@frozen
class StockSettings(Settings):
    """Where goods are kept."""

    shelves: int = setting(10, Integer(1, 100), "How many shelves there are.")


@frozen
class ShopSettings(Settings):
    """A shop."""

    database: str = setting(
        "memory", StoreUrl(("memory",), ("postgresql",)), "Where orders are kept."
    )
    max_orders: int = setting(100, Integer(1, 1_000), "Most orders of one call.")
    greeting: str = setting("Hello", Line(), "What customers read.")
    currency: str = setting("EUR", Choice(("EUR", "NOK")), "Of prices.")
    tags: tuple[str, ...] = setting((), ListOf(TAG), "Of goods.")
    is_open: bool = flag(True, "Take orders.")
    timeout_ms: int = milliseconds(500, "Longest order.")
    max_bytes: int = byte_count(4096, "Largest order.")
    stock: StockSettings = group(StockSettings())  # noqa: RUF009

    def __attrs_post_init__(self) -> None:
        if self.is_open and self.max_orders % 2:
            raise SettingError("max_orders", "an even number, because is_open is true")


@frozen
class OtherSettings(Settings):
    """Another section."""

    limit: int = setting(1, Integer(1, 9), "A limit.")


def shop(**options: Any) -> Server:
    return Server("shop", sections={"shop": ShopSettings}, **options)


def problems_of(server: Server) -> list[str]:
    with pytest.raises(ConfigError) as refusal:
        server.load_config()
    return [str(problem) for problem in refusal.value.problems]


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in os.environ if each.startswith("FOUNDATION_RT_")]:
        monkeypatch.delenv(name)


@pytest.mark.rule("CONF-24", "CONF-26")
def test_section_has_its_defaults_and_does_not_change_ours() -> None:
    server = shop()
    assert server.settings(ShopSettings) == ShopSettings()
    assert server.settings(ToolsSection) == ToolsSection()
    assert Server().load_config() == ServerConfig()
    assert not hasattr(ServerConfig(), "shop")


@pytest.mark.rule("CONF-24", "CONF-02")
def test_environment_wins_over_file_over_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "shop.toml"
    file.write_text(
        '[shop]\nmax_orders = 20\ngreeting = "file"\ntags = ["a", "b"]\n[shop.stock]\nshelves = 2\n'
    )
    monkeypatch.setenv("FOUNDATION_RT_SHOP__MAX_ORDERS", "30")
    monkeypatch.setenv("FOUNDATION_RT_SHOP__IS_OPEN", "no")
    code = {"max_orders": 40, "greeting": "code", "timeout_ms": 7, "stock": {"shelves": 3}}
    server = shop(config={"shop": code})
    server.configure(file)
    assert server.settings(ShopSettings) == ShopSettings(
        max_orders=30,
        is_open=False,
        greeting="file",
        tags=("a", "b"),
        timeout_ms=7,
        stock=StockSettings(shelves=2),
    )


@pytest.mark.rule("CONF-24")
def test_override_wins_and_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOUNDATION_RT_SHOP__MAX_ORDERS", "30")
    server = shop()
    server.override("shop", max_orders=50)
    assert server.settings(ShopSettings).max_orders == 50
    server.override("shop", max_orders=5000)
    with pytest.raises(ConfigError, match="shop: max_orders: expected an integer from 1 to 1000"):
        server.load_config()


@pytest.mark.rule("CONF-24", "CONF-03", "CONF-04", "CONF-05")
def test_wrong_values_and_unknown_keys_are_refused_as_ours_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "shop.json"
    file.write_text(
        json.dumps({"shop": {"max_order": 1, "currency": "USD", "stock": {"shelf": 1}}, "shp": {}})
    )
    monkeypatch.setenv("FOUNDATION_RT_SHOP__DATABASE", "mysql://joe:hunter2@db/shop")
    monkeypatch.setenv("FOUNDATION_RT_SHOP__TIMEOUT", "1")
    server = shop(config={"shop": {"is_open": "yes", "tags": ["A"]}})
    server.configure(file)
    named = f"file {file}"
    known = "expected a known key; the nearest is"
    assert problems_of(server) == [
        "shop.timeout = [REDACTED] (environment FOUNDATION_RT_SHOP__TIMEOUT): expected a known"
        " variable; the nearest is FOUNDATION_RT_SHOP__TIMEOUT_MS",
        "shop.database = [REDACTED] (environment FOUNDATION_RT_SHOP__DATABASE): expected memory,"
        " or postgresql:...",
        f"shop.currency = 'USD' ({named}): expected one of EUR, NOK",
        "shop.tags = ['A'] (code): expected a list, each item lower-case letters",
        "shop.is_open = 'yes' (code): expected true or false",
        f"shop.stock.shelf = [REDACTED] ({named}): {known} shop.stock.shelves",
        f"shop.max_order = [REDACTED] ({named}): {known} shop.max_orders",
        f"shp = [REDACTED] ({named}): {known} shop",
    ]


@pytest.mark.rule("CONF-24", "CONF-04")
def test_settings_that_disagree_are_a_problem_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FOUNDATION_RT_SHOP__MAX_ORDERS", "3")
    assert problems_of(shop()) == [
        "shop.max_orders = 3 (environment FOUNDATION_RT_SHOP__MAX_ORDERS): expected an even number,"
        " because is_open is true"
    ]


@frozen
class VagueSettings(Settings):
    """A section whose check names no setting of it."""

    pin: str = setting("0000", Pattern("[0-9]{4}", "4 digits", is_secret=True), "A secret.")

    def __attrs_post_init__(self) -> None:
        if self.pin != "0000":
            raise SettingError("pins", "another pin")


@pytest.mark.rule("CONF-24", "CONF-05")
def test_problem_of_a_name_that_is_no_setting_shows_no_value() -> None:
    server = Server(sections={"vague": VagueSettings}, config={"vague": {"pin": "1234"}})
    assert problems_of(server) == ["vague.pins = None (code): expected another pin"]


@pytest.mark.rule("CONF-24", "CONF-05")
def test_representation_has_no_secret() -> None:
    settings = ShopSettings(database="postgresql://joe:hunter2@db/shop")
    server = shop(config={"shop": {"database": settings.database}})
    assert server.settings(ShopSettings).database == settings.database
    for shown in (repr(settings), repr(server.load_config())):
        assert "hunter2" not in shown
        assert "max_orders=100" in shown


@pytest.mark.rule("CONF-26")
def test_handlers_and_lifespan_hooks_read_the_section() -> None:
    server = shop(config={"shop": {"max_orders": 8}})
    seen = []

    @server.lifespan
    async def note(started: Server) -> Any:
        seen.append(started.settings(ShopSettings).max_orders)
        yield {}

    @server.tool
    def limit() -> int:
        return server.settings(ShopSettings).max_orders

    async def main() -> None:
        async with server.lifetime(), TestClient(server) as client:
            assert await client.call("limit") == 8

    run_bounded(main)
    assert seen == [8]


@pytest.mark.rule("CONF-26")
def test_settings_are_those_of_the_started_server(monkeypatch: pytest.MonkeyPatch) -> None:
    server = shop()
    monkeypatch.setenv("FOUNDATION_RT_SHOP__MAX_ORDERS", "2")
    assert server.settings(ShopSettings).max_orders == 2
    started = server.runtime.config
    monkeypatch.setenv("FOUNDATION_RT_SHOP__MAX_ORDERS", "4")
    assert server.settings(ShopSettings) is started.section(ShopSettings)
    assert server.settings(ShopSettings).max_orders == 2


@pytest.mark.rule("CONF-26")
@pytest.mark.parametrize("cls", [OtherSettings, StockSettings, Settings, int])
def test_class_that_is_no_section_is_a_usage_error(cls: Any) -> None:
    with pytest.raises(UsageError, match=f"no section is a {cls.__name__}: "):
        shop().settings(cls)


@pytest.mark.rule("CONF-24")
def test_complete_configuration_is_joined_by_the_defaults_of_the_sections() -> None:
    given = ServerConfig(http=HttpSection(port=1))
    server = shop(options=ServerOptions(config=given))
    server.override("shop", max_orders=6)
    config = server.load_config()
    assert config.http.port == 1
    assert config.section(ShopSettings) == ShopSettings(max_orders=6)
    again = shop(options=ServerOptions(config=config))
    assert again.settings(ShopSettings) == ShopSettings()  # it belongs to another server


@pytest.mark.rule("CONF-27", "CONF-02")
def test_defaults_in_code_are_below_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    server = shop(config={"telemetry": {"metrics": False}, "shop": {"max_orders": 2}})
    server.set_defaults("telemetry", metrics=True)
    server.set_defaults("rate_limit", per_tool=100)
    server.set_defaults("shop", greeting="Hi")
    config = server.load_config()
    assert config.telemetry.metrics
    assert config.rate_limit.per_tool == 100
    assert config.section(ShopSettings) == ShopSettings(max_orders=2, greeting="Hi")
    monkeypatch.setenv("FOUNDATION_RT_RATE_LIMIT__PER_TOOL", "7")
    monkeypatch.setenv("FOUNDATION_RT_SHOP__GREETING", "Ho")
    assert server.load_config().rate_limit.per_tool == 7
    assert server.settings(ShopSettings).greeting == "Ho"


@pytest.mark.rule("CONF-27", "CONF-03")
def test_unknown_defaults_are_refused_by_name() -> None:
    server = Server(config={"tools": 5})  # type: ignore[dict-item]
    server.set_defaults("shop", greeting="Hi")
    server.set_defaults("tools", check_formats=False)
    assert problems_of(server) == [
        "tools = 5 (code): expected a table",
        "shop = [REDACTED] (code): expected a known key; the nearest is http",
    ]


@pytest.mark.rule("CONF-27")
def test_defaults_come_before_the_start() -> None:
    server = shop()
    _ = server.runtime
    with pytest.raises(UsageError, match="set_defaults"):
        server.set_defaults("shop", greeting="late")


# -- what is refused at registration


@frozen
class NoSetting(Settings):
    """One attribute is not made by `setting`."""

    limit: int = 5


@frozen
class NoDefault(Settings):
    """One attribute has no default."""

    limit: int = field(validator=Integer(1, 2))


@frozen
class WrongDefault(Settings):
    """A default is not accepted."""

    limit: int = setting(5, Integer(1, 2), "A limit.")


@frozen
class WrongName(Settings):
    """The name has a capital."""

    maxOrders: int = setting(1, Integer(1, 2), "A limit.")


@frozen
class PrivateName(Settings):
    """The name begins with _."""

    _limit: int = setting(1, Integer(1, 2), "A limit.")


@frozen
class WrongGroup(Settings):
    """A group has an attribute that is not made by `setting`."""

    inner: NoSetting = group(NoSetting())  # noqa: RUF009


class Undecorated(Settings):
    """Not an attrs class of its own."""

    limit: int = setting(1, Integer(1, 2), "A limit.")


@define
class NoSettings:
    """Not derived from `Settings`."""

    limit: int = setting(1, Integer(1, 2), "A limit.")


@pytest.mark.rule("CONF-25")
@pytest.mark.parametrize(
    ("name", "cls", "problem"),
    [
        *((name, OtherSettings, "the runtime has this name") for name in ("tools", "http")),
        *((name, OtherSettings, "the runtime has this name") for name in ("section", "share_of")),
        *(
            (name, OtherSettings, "expected a name of 1 to 64 letters")
            for name in ("", "Shop", "1shop", "_shop", "a__b", "a_", "é", "a.b", "class", "a" * 65)
        ),
        (None, OtherSettings, "expected a name"),
        ("x", OtherSettings(), "expected a class that derives from Settings"),
        ("x", NoSettings, "expected a class that derives from Settings"),
        ("x", None, "expected a class that derives from Settings"),
        ("x", Undecorated, "decorate Undecorated with attrs.frozen"),
        ("x", NoSetting, r"limit is not made by setting\(\) or group\(\)"),
        ("x", WrongGroup, r"limit is not made by setting\(\) or group\(\)"),
        ("x", NoDefault, "a default is refused: .*limit"),
        ("x", WrongDefault, "a default is refused: limit: expected an integer from 1 to 2"),
        ("x", WrongName, "maxOrders: expected a name"),
        ("x", PrivateName, "_limit is not made by"),
    ],
)
def test_section_is_refused_when_the_server_is_made(name: Any, cls: Any, problem: str) -> None:
    with pytest.raises(RegistrationError, match=problem) as refusal:
        Server(sections={name: cls})
    assert str(refusal.value).startswith(f"section {name!r}: ")


@pytest.mark.rule("CONF-25")
def test_two_sections_have_two_classes() -> None:
    with pytest.raises(RegistrationError, match="OtherSettings is the class of another section"):
        Server(sections={"a": OtherSettings, "b": OtherSettings})
    assert Server(sections={"a": OtherSettings, "shop": ShopSettings}).settings(OtherSettings)
    with pytest.raises(UsageError, match="sections is a mapping"):
        Server(sections=[ShopSettings])  # type: ignore[arg-type]


# -- the command line

APP = """
from attrs import frozen
from foundation_rt import Server
from foundation_rt.base.config.sections import Integer, Settings, StoreUrl, setting

@frozen
class ShopSettings(Settings):
    "A shop."
    database: str = setting("memory", StoreUrl(("memory",), ("postgresql",)), "Orders.")
    max_orders: int = setting(100, Integer(1, 1_000), "Most orders of one call.")

server = Server("shop", sections={"shop": ShopSettings})
"""


def run_check(folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    (folder / "app.py").write_text(APP)
    return fork_server.run(
        [sys.executable, "-m", "foundation_rt", "check", str(folder / "app.py"), "--json"],
        capture_output=True,
        text=True,
        env={**os.environ, **environ},
        timeout=40,
    )


@pytest.mark.rule("CONF-24", "CONF-19")
def test_check_shows_the_section_without_its_secrets(tmp_path: Path) -> None:
    database = "postgresql://joe:hunter2@db/shop"
    done = run_check(tmp_path, FOUNDATION_RT_SHOP__DATABASE=database)
    assert done.returncode == 0
    shown = json.loads(done.stdout)["configuration"]
    assert shown["shop"] == {"database": "[REDACTED]", "max_orders": 100}
    assert "hunter2" not in done.stdout + done.stderr
    validate = fastjsonschema.compile(json.loads(SCHEMA.read_text()), use_default=False)
    with pytest.raises(fastjsonschema.JsonSchemaException, match="must not contain"):
        validate({"shop": shown["shop"]})


@pytest.mark.rule("CONF-24", "CONF-04")
def test_check_ends_with_the_problems_of_the_section(tmp_path: Path) -> None:
    done = run_check(tmp_path, FOUNDATION_RT_SHOP__MAX_ORDERS="many")
    assert done.returncode == 1
    assert (
        "shop.max_orders = 'many' (environment FOUNDATION_RT_SHOP__MAX_ORDERS):"
        " expected an integer from 1 to 1000" in done.stderr
    )


@pytest.mark.rule("CONF-21")
def test_server_without_sections_imports_nothing_for_them() -> None:
    program = (
        "import sys, foundation_rt; foundation_rt.Server('x').load_config(); print(*sys.modules)"
    )
    done = run_source(program)
    loaded = set(done.stdout.split())
    assert "foundation_rt.base.config.settings" in loaded
    assert not loaded & {"foundation_rt.base.config.sections", "foundation_rt.base.config.loading"}
