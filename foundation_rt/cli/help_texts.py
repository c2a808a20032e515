"""The help of the command line, and of each command (CLI-06, CLI-55).

A line of an option is `  --name VALUE`, two blanks or more, and its description, which lines of
more than 30 blanks carry on: completion shows the same description (CLI-56).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import import_module

from .render import wrapped

_APP = """\
APP is FILE.py or a module, with :attribute where it holds several servers. What follows `--` at the
end is for its program, which finds it in sys.argv.
"""
_TARGET = """\
TARGET is a URL; or an APP, FILE.py or module:attribute, which is served in memory; or a name in an
mcp.json; or a command line that starts a server, in quotes.
"""
_ARGUMENT = """\
ARGUMENT is KEY=VALUE, read as the tool's schema says; KEY:=JSON; or all of them as one JSON object.
"""

GENERAL = f"""\
usage: foundation-rt COMMAND [ARGUMENT ...]
       foundation-rt help COMMAND      its options and examples

commands for a server of your own, the APP:
  serve [APP]                     serve it over stdio or HTTP; without APP, the demo tools
  check [APP]                     load it; show its tools and the settings that it changes
  check --portable TARGET         name the tools that Claude, OpenAI or Gemini refuse, and why
  dev [TARGET]                    serve it with a page, restarted on change
  install [CLIENT TARGET]         write a server into the file of a desktop client
  uninstall CLIENT NAME           take it out again
  migrate FILE ...                rewrite programs of other libraries

commands for any server, the TARGET:
  tools TARGET                    list its tools
  call TARGET TOOL [ARGUMENT ...]
                                  call a tool; print its result
  read TARGET URI                 read a resource
  prompt TARGET NAME [KEY=VALUE ...]
                                  print a prompt, filled in
  inspect TARGET                  show all its lists, with readable schemas
  ping TARGET                     measure its round-trip times

commands for a ledger of agents:
  agents list                     list its agents and requests
  agents show|cancel|requeue ID   show a request, cancel it, have it executed again
  agents purge                    delete what has expired
  agents schedules|unschedule     list schedules, remove them

applications that come with the runtime:
  ask [QUESTION ...]              ask a model that uses your servers
  gateway [FILE | TARGET]         serve the servers of an mcp.json as one
  gateway status URL              show the servers of a gateway
  host                            chat with a model that uses your servers
  openapi FILE|URL                serve an HTTP API as tools, from its document
  task-server                     serve tasks that agents and people share

this program:
  help [COMMAND]                  show this, or the help of a command
  completion SHELL                print the completion of bash, zsh or fish
  --version                       show the version

{_APP}{_TARGET}
examples:
  foundation-rt serve tools.py
  foundation-rt serve tools.py --http 127.0.0.1:8000 --no-auth
  foundation-rt check tools.py --config production.toml
  foundation-rt call tools.py forecast city=Oslo days=3
  foundation-rt inspect 'npx -y @modelcontextprotocol/server-everything'

exit codes: 0; 1 the tool failed, or the APP cannot be served; 2 the command line is wrong; 3 the
server cannot be reached, or has not sent the result; 4 stdout cannot be written; 130 interrupted
"""

_SERVE = f"""\
usage: foundation-rt serve [APP] [OPTION ...] [-- ARGUMENT ...]

Serve a program of yours: over stdio, as desktop clients start it, or over HTTP. Without APP, the
demo tools echo, sleep and health are served.

{_APP}
options of the program:
  --config FILE                   a configuration file, .toml or .json
  --traceback                     show the whole traceback if the program cannot be loaded

options of the transport:
  --http HOST:PORT                serve over HTTP at this address or port (extra `http`)
  --transport TRANSPORT           stdio, http or both; by default stdio, with --http http
  --no-auth                       serve every client over HTTP, without a key or token
  --workers N                     serve HTTP in N processes

examples:
  foundation-rt serve tools.py
  foundation-rt serve tools.py:server --config production.toml
  foundation-rt serve package.tools -- --db shop.sqlite
  foundation-rt serve tools.py --http 127.0.0.1:8000 --no-auth
  foundation-rt serve tools.py --http :8000 --workers 4 --config production.toml

exit codes: 0; 1 the APP cannot be served; 2 the command line is wrong; 130 interrupted
"""

_CHECK = f"""\
usage: foundation-rt check [APP] [OPTION ...] [-- ARGUMENT ...]
       foundation-rt check --portable TARGET [OPTION ...]

Load a program and its configuration as `serve` does, and show its tools in a line each and the
settings that differ from the defaults; or show the error. Secrets are not shown.

With --portable: name what Claude, OpenAI or Gemini refuse of the tools of any server, and why. It
takes the options of `foundation-rt tools`.

{_APP}{_TARGET}
options of the program:
  --config FILE                   a configuration file, .toml or .json
  --traceback                     show the whole traceback if the program cannot be loaded

options of the output:
  --all                           show the schemas of the tools, and every setting
  --json                          print everything as JSON, for programs
  --portable                      name what models refuse of the tools

examples:
  foundation-rt check tools.py
  foundation-rt check tools.py --config production.toml --all
  foundation-rt check tools.py --json
  foundation-rt check --portable 'uvx some-server'

exit codes: 0; 1 the APP cannot be served, or a model refuses a tool; 2 the command line is wrong
"""

_OF_TARGET = """
options of the server:
  --servers FILE                  TARGET is a name in this file
  --env NAME[=VALUE]              set this variable, or pass ours on; for a command, may be repeated
  --header 'NAME: VALUE'          send this header; for a URL, may be repeated
  --protocol REVISION             use this revision of the protocol and no other
  --timeout S                     wait S seconds for a response, by default 60
  --config FILE                   configure the APP, with a file of .toml or .json
  --traceback                     show the whole traceback if the APP cannot be loaded
  --trust                         run the server that an mcp.json of this folder lists by this name,
                                  without asking

options of the output:
  --json                          print JSON, errors too
"""
_SAVE = """\
  --save FOLDER                   write images, audio and other bytes to new files in it
"""
_PERSON = """
At a terminal you see progress and log messages meanwhile, and answer what the server asks. Ctrl-D
cancels a question, Ctrl-C the request.
"""
_EXIT_CODES = """
exit codes: 0; 1 the tool failed; 2 the command line or the arguments are wrong; 3 the server cannot
be reached, or has not sent the result; 4 stdout cannot be written; 130 interrupted
"""

_TOOLS = f"""\
usage: foundation-rt tools TARGET [OPTION ...]

List the tools of a server, each in a line. `foundation-rt inspect` shows their schemas too.

{_TARGET}{_OF_TARGET}
examples:
  foundation-rt tools tools.py
  foundation-rt tools https://example.com/mcp --header "Authorization: Bearer $TOKEN"
{_EXIT_CODES}"""

_CALL = f"""\
usage: foundation-rt call TARGET TOOL [ARGUMENT ...] [OPTION ...]

Call one tool and print what it returns. The arguments are checked against its schema first.

{_TARGET}{_ARGUMENT}{_PERSON}{_OF_TARGET}{_SAVE}
examples:
  foundation-rt call tools.py forecast city=Oslo days=3
  foundation-rt call tools.py forecast city=Oslo 'days:=3' --json
  foundation-rt call tools.py forecast '{{"city": "Oslo"}}' --timeout 5
  foundation-rt call 'uvx some-server' chart --save charts
{_EXIT_CODES}"""

_READ = f"""\
usage: foundation-rt read TARGET URI [OPTION ...]

Read a resource of a server and print its contents.

{_TARGET}{_PERSON}{_OF_TARGET}{_SAVE}
examples:
  foundation-rt read tools.py notes://today
  foundation-rt read tools.py image://logo > logo.png
{_EXIT_CODES}"""

_PROMPT = f"""\
usage: foundation-rt prompt TARGET NAME [KEY=VALUE ...] [OPTION ...]

Print the messages of a prompt, filled in with these arguments.

{_TARGET}{_PERSON}{_OF_TARGET}{_SAVE}
examples:
  foundation-rt prompt tools.py review language=python
{_EXIT_CODES}"""

_PING = f"""\
usage: foundation-rt ping TARGET [--count N] [OPTION ...]

Ping a server N times, one after the other; print the least time, p50, p95, p99 and the greatest.

{_TARGET}
  --count N                       send N pings, by default 10
{_OF_TARGET}
examples:
  foundation-rt ping tools.py --count 100
  foundation-rt ping https://example.com/mcp --json
{_EXIT_CODES}"""

_INSPECT = f"""\
usage: foundation-rt inspect TARGET [OPTION ...]

Show a server: its name, revision and capabilities, its tools and prompts with readable schemas, its
resources and templates.

{_TARGET}{_OF_TARGET}
examples:
  foundation-rt inspect tools.py
  foundation-rt inspect 'npx -y @modelcontextprotocol/server-everything'
  foundation-rt inspect weather --servers mcp.json --json
{_EXIT_CODES}"""

_COMPLETION = """\
usage: foundation-rt completion bash|zsh|fish

Print a script that completes commands, options, their values and files in a shell.

examples:
  source <(foundation-rt completion bash)      # in this bash; in ~/.bashrc: in every one
  source <(foundation-rt completion zsh)       # in ~/.zshrc, below compinit
  foundation-rt completion fish > ~/.config/fish/completions/foundation-rt.fish
"""

_TEXTS: Mapping[str, str] = {
    "": GENERAL,
    "help": GENERAL,
    "call": _CALL,
    "check": _CHECK,
    "completion": _COMPLETION,
    "inspect": _INSPECT,
    "ping": _PING,
    "prompt": _PROMPT,
    "read": _READ,
    "serve": _SERVE,
    "tools": _TOOLS,
}
_OF_MODULES: Mapping[str, tuple[str, str]] = {
    "agents": ("agents", "HELP"),
    "ask": ("ask", "HELP"),
    "dev": ("dev", "HELP"),
    "gateway": ("gateway", "HELP"),
    "host": ("host", "HELP"),
    "install": ("install", "INSTALL_HELP"),
    "migrate": ("migrate", "HELP"),
    "openapi": ("openapi", "HELP"),
    "task-server": ("task_server", "HELP"),
    "uninstall": ("install", "UNINSTALL_HELP"),
}

_OPTION = re.compile(r"^  (--[a-z-]+)(?: (?:\S+|'[^']*'))?  +(\S.*(?:\n {31,}\S.*)*)", re.MULTILINE)
_COMMAND = re.compile(r"^  ([a-z][a-z-]*)(?: \S.*?)??(?: {2,}|\n {31,})(\S.*)$", re.MULTILINE)

_WIDTH = 100
_LEAST = 24
# The beginnings of lines that hold a command.
_COPIED = ("usage:", "       ", "  foundation-rt", "  source", "  git", "  GEMINI", "  LLM")
_ENTRY = re.compile(r"(  \S.*?)( {2,})(\S.*)")
# A line break within a sentence, or within the description of an option or a command.
_CARRIED_ON = re.compile(r"(?<=[^\n:])\n(?=(?! )(?!usage:)(?![A-Z]+ is )\S)|\n {31,}(?=\S)")


def help_text(command: str) -> str:
    """Return the help of a command; of "", that of the whole command line."""
    if command in _TEXTS:
        return _TEXTS[command]
    module, name = _OF_MODULES[command]
    text: str = getattr(import_module(f".{module}", __package__), name)
    return text


def command_descriptions() -> dict[str, str]:
    """Return what the general help says of each command."""
    listed = GENERAL[GENERAL.index("\ncommands") : GENERAL.index("\nAPP is")]
    described: dict[str, str] = {}
    for name, text in _COMMAND.findall(listed):
        described.setdefault(name, text)  # a second form of a command comes after the first
    return described


def option_descriptions(command: str) -> dict[str, str]:
    """Return what the help of a command says of each of its options, in one line."""
    found = _OPTION.findall(help_text(command))
    return {name: " ".join(text.split()) for name, text in found}


def fitted(text: str, columns: int) -> str:
    """Return a help text for a terminal that is narrower than it was written for.

    Commands, which people copy, keep their line. All else ends its lines between words.
    """
    if columns >= _WIDTH:
        return text
    whole = _CARRIED_ON.sub(" ", text)
    return "".join(f"{_fitted_line(line, columns)}\n" for line in whole.splitlines())


def _fitted_line(line: str, columns: int) -> str:
    entry = _ENTRY.fullmatch(line)
    if len(line) <= columns or line.startswith(_COPIED):
        return line
    if entry is None:
        return wrapped(line, columns)
    name, gap, described = entry.groups()
    indent = len(name) + len(gap)
    if columns - indent < _LEAST:
        return f"{name}\n{wrapped(f'      {described}', columns)}"
    beside = wrapped(" " * indent + described, columns)
    return f"{name}{gap}{beside.lstrip()}"
