"""What `foundation-rt --help` shows."""

HELP = """\
usage: foundation-rt COMMAND [ARGUMENT ...]

of a server of yours, which is an APP:
  serve [APP] [--config FILE]     serve APP over stdio; without APP, the demo tools
        [--http HOST:PORT]        serve it over HTTP instead (needs the extra `http`)
        [--transport both]        over stdio and HTTP: stdio, http or both
        [--no-auth]               let everybody in who reaches the server over HTTP
        [--workers N]             serve HTTP in N processes
  check [APP] [--config FILE]     load APP and the configuration; print both, or the error

of any server, which is a TARGET:
  tools TARGET                    list its tools
  call TARGET TOOL [ARGUMENT ...] call a tool; print its result
  read TARGET URI                 read a resource
  prompt TARGET NAME [KEY=VALUE ...]
                                  print a prompt, filled in
  ping TARGET [--count N]         measure how long it takes to answer
  inspect TARGET                  show all it offers, with readable schemas

APP is FILE.py or a module, with :attribute where it holds several servers.
TARGET is a URL; or an APP, FILE.py or module:attribute, which is served in memory; or a name in an
mcp.json; or a command line that starts a server, in quotes.
ARGUMENT is KEY=VALUE, read as the tool's schema says; KEY:=JSON; or all of them as one JSON object.
FILE is a configuration file, .toml or .json.

options:
  --json                          print JSON, errors too
  --timeout S                     wait S seconds for an answer, by default 60
  --header 'NAME: VALUE'          send this header; for a URL, may be repeated
  --protocol REVISION             speak this revision of the protocol and no other
  --servers FILE                  TARGET is a name in this file
  --config FILE                   configure the APP
  --help                          show this and exit
  --version                       show the version and exit

examples:
  foundation-rt serve tools.py
  foundation-rt serve tools.py:server --config production.toml
  foundation-rt serve tools.py --http 127.0.0.1:8000 --no-auth
  foundation-rt check tools.py
  foundation-rt call tools.py forecast city=Oslo days=3
  foundation-rt call tools.py forecast '{"city": "Oslo"}'
  foundation-rt inspect 'npx -y @modelcontextprotocol/server-everything'
  foundation-rt tools https://example.com/mcp --header "Authorization: Bearer $TOKEN"

exit codes: 0; 1 the tool failed, or what is to be served cannot be; 2 the command line is wrong;
3 the server cannot be reached, or did not answer as asked; 4 stdout cannot be written;
130 interrupted
"""
