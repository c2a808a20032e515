"""The operator: nginx with TLS and a path in front, logins, three workers, metrics."""

from __future__ import annotations

import re
import shutil
import ssl
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.lab.login.identity_provider import CLIENT_ID, CLIENT_SECRET, running_provider
from tests.lab.pages.chromium import chromium
from tests.lab.places.services import REQUIRED
from tests.lab.programs.guides import GUIDES
from tests.lab.programs.journey import Journey
from tests.lab.servers.http_server import free_port
from tests.lab.servers.process import PATIENCE

NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
WORKERS = 3
HOSTS = "test_workers.py serves from several hosts"


def make_certificate(folder: Path) -> Path:
    """Write a certificate of this machine and its key; return the certificate."""
    names = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost")
    kind = ("-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    files = ("-keyout", folder / "mcp.key", "-out", folder / "mcp.pem")
    words = ["openssl", "req", *kind, *files, "-days", "2", *names]
    subprocess.run(words, check=True, capture_output=True)
    return folder / "mcp.pem"


@contextmanager
def nginx(folder: Path, servers: str) -> Iterator[None]:
    """Run nginx with these servers until the block ends."""
    assert NGINX is not None
    log = folder / "nginx.log"
    temporary = " ".join(
        f"{kind}_temp_path {folder}/{kind};"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"daemon off; pid {folder}/nginx.pid; error_log {log};\nevents {{}}\n"
        f"http {{ access_log {log}; {temporary}\n{servers}}}\n"
    )
    process = subprocess.Popen([NGINX, "-c", folder / "nginx.conf", "-p", folder, "-e", log])
    try:
        yield
    finally:
        process.terminate()
        process.wait(PATIENCE)


@pytest.mark.skipif(NGINX is None and not REQUIRED, reason="nginx is not there")
def test_server_is_reached_below_a_path_with_a_login_and_counted(journey: Journey) -> None:
    port, behind = free_port(), free_port()
    site = f"localhost:{port}"
    certificate = make_certificate(journey.folder)
    for page in ("authorization.md", "deployment.md", "proxies.md"):
        journey.follow(GUIDES / page)
    journey.open(GUIDES / "tutorial.md")
    with running_provider() as provider, chromium() as browser:
        journey.values = {
            "server_name mcp.example.com": "server_name localhost",
            "mcp.example.com/mcp": f"{site}/weather/mcp",
            "mcp.example.com": site,
            "443 ssl": f"{port} ssl",
            "/etc/ssl/mcp": str(journey.folder / "mcp"),
            "127.0.0.1:8000": f"127.0.0.1:{behind}",
            "=github": f"=oidc FOUNDATION_RT_AUTHORIZATION__PROVIDER_URL={provider.url}",
            "Iv1.0123456789abcdef": CLIENT_ID,
            "SECRET=...": f"SECRET={CLIENT_SECRET}",
            "ann@example.com,org:acme": "ann@x.org",
        }
        journey.make_environment()
        journey.run("pip install -e '.[http-full,metrics]'")
        journey.write("tools.py", "def forecast")
        journey.write("config.toml", "allowed_hosts")
        for name in ("PROVIDER", "CLIENT_ID", "CLIENT_SECRET", "ALLOW"):
            journey.run(f"export FOUNDATION_RT_AUTHORIZATION__{name}=")
        journey.run("export FOUNDATION_RT_SECURITY__STATE_KEY=$(openssl rand -hex 32)   # keep")
        journey.run("export FOUNDATION_RT_AUTHORIZATION__URL=https://mcp.example.com/weather")
        journey.run("export FOUNDATION_RT_AUTHORIZATION__STORE=")
        journey.run("export FOUNDATION_RT_HTTP__API_KEYS=prometheus:")
        server = journey.block("listen 443")
        places = journey.block("location /weather/")
        servers = f"{server[: server.index('    location /')]}{places}}}\n"
        serve = "foundation-rt serve tools.py --config config.toml"
        opened = journey.set_browser()
        journey.set("SSL_CERT_FILE", str(certificate))
        with nginx(journey.folder, servers), journey.running(serve, "serving") as workers:
            workers.wait_for("serving over HTTP", WORKERS)
            with journey.running("foundation-rt login", "Log in on the page") as login:
                page = browser.new_page(ignore_https_errors=True)
                page.goto(opened())
                page.get_by_role("button").first.click()
                expect(page.locator("body")).to_contain_text("You can close this page")
                login.wait_for("Logged in")
                login.finish()
            assert "forecast" in journey.run("foundation-rt tools https://mcp.example.com/mcp")
            call = "foundation-rt call https://mcp.example.com/mcp forecast city=Oslo"
            assert "sunny" in journey.run(call)
            journey.reached("login and call through the proxy")
            counted = metrics(site, certificate, journey.variable("FOUNDATION_RT_HTTP__API_KEYS"))
            [calls] = re.findall(r"calls_total{.*forecast.*} (\S+)", counted)
            assert float(calls) == 1
            assert len(re.findall(r"^foundation_rt_info{", counted, re.MULTILINE)) == WORKERS
    for start, reason in {
        "export FOUNDATION_RT_AUTHORIZATION__URL=https://mcp.example.com": "it is below a path",
        "foundation-rt serve app.py": "it is served with workers",
        "export FOUNDATION_RT_HTTP__API_KEYS=alice": "people log in",
        "foundation-rt serve tools.py --http 127.0.0.1:8000 ": "it is served with workers",
        "export FOUNDATION_RT_HTTP__API_KEYS=$(": HOSTS,
        "export FOUNDATION_RT_SECURITY__STATE_KEY=$(openssl rand -hex 32)": HOSTS,
        "export FOUNDATION_RT_HTTP__EVENT_STORE": HOSTS,
        "export FOUNDATION_RT_SERVER__SESSION_STATE_STORE": HOSTS,
        "export FOUNDATION_RT_HTTP__WORKER_ADDRESS": HOSTS,
        "foundation-rt serve tools.py --http 127.0.0.1:8001": HOSTS,
        "foundation-rt serve tools.py --http 127.0.0.1:8002": HOSTS,
    }.items():
        journey.leave(start, reason)
    journey.finish()


def metrics(site: str, certificate: Path, keys: str) -> str:
    """Return what Prometheus reads, with its key."""
    headers = {"Authorization": f"Bearer {keys.partition(':')[2]}"}
    request = urllib.request.Request(f"https://{site}/weather/metrics", headers=headers)
    trust = ssl.create_default_context(cafile=str(certificate))
    with urllib.request.urlopen(request, timeout=PATIENCE, context=trust) as answer:
        return str(answer.read().decode())
