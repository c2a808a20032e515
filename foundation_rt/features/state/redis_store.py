"""Session states in Redis, for all workers and hosts (CALL-34 to CALL-38).

    PREFIXstate:{server}:session:DIGEST      hash: the JSON of each value, by its name
    PREFIXstate:{server}:principal:DIGEST    hash: the same
    PREFIXstate:{server}:principals          sorted set: the keys of principals, by their expiry

Scripts decide, so that no call sees half of what another one has written, and that the limits hold
whoever writes. The client blocks: it is used in worker threads. It waits for one second at most to
connect and for each response; after a failure nothing is tried for a second.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any

from attrs import define, field, frozen

from ...base.redis_link import FAILURES, Outage, connect_blocking
from ...errors import ErrorCode, ToolError
from .handler_state import state_too_large, too_many_states

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redis import Redis
    from redis.commands.core import Script

    from ...base.clock import Clock
    from ...base.config.settings import ServerSection
    from ...base.logs.logger import StructuredLogger
    from .handler_state import StateChanges

SESSION_TTL_MS = 24 * 3600 * 1000
"""The milliseconds for which the state of a session is kept after it was last looked at."""

_TIMEOUT_SECONDS = 1.0
_RETRY_SECONDS = 1.0

_NOW = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
"""

_LOAD = f"""
local state, principals, ttl = KEYS[1], KEYS[2], ARGV[1]
local found = redis.call('HGETALL', state)
if #found > 0 then
  redis.call('PEXPIRE', state, ttl)
  if principals then
    {_NOW}
    redis.call('ZADD', principals, 'XX', now + ttl, state)
  end
end
return found
"""

# A name and its value have two quotes, a colon and a comma around them.
_SAVE = f"""
local state, principals, ttl = KEYS[1], KEYS[2], ARGV[1]
local max_bytes, max_states, removed = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
if principals and redis.call('EXISTS', state) == 0 then
  {_NOW}
  redis.call('ZREMRANGEBYSCORE', principals, '-inf', now)
  if redis.call('ZCARD', principals) >= max_states then return 'full' end
end
local size, changed = 2, {{}}
for i = 5, 4 + removed do changed[ARGV[i]] = true end
for i = 5 + removed, #ARGV, 2 do
  changed[ARGV[i]] = true
  size = size + #ARGV[i] + #ARGV[i + 1] + 4
end
local found = redis.call('HGETALL', state)
for i = 1, #found, 2 do
  if not changed[found[i]] then size = size + #found[i] + #found[i + 1] + 4 end
end
if size > max_bytes + 1 then return 'large' end
for i = 5, 4 + removed do redis.call('HDEL', state, ARGV[i]) end
for i = 5 + removed, #ARGV, 2 do redis.call('HSET', state, ARGV[i], ARGV[i + 1]) end
redis.call('PEXPIRE', state, ttl)
if principals then
  if redis.call('EXISTS', state) == 1 then
    {_NOW}
    redis.call('ZADD', principals, now + ttl, state)
  else
    redis.call('ZREM', principals, state)
  end
end
return 'ok'
"""


@frozen
class StateName:
    """The owner of a stored state.

    Attributes:
        owner: the id of a session, or the identity of a principal; never written to Redis.
        is_principal: whether it is a principal's.
    """

    owner: str
    is_principal: bool


@define(eq=False, repr=False)
class RedisStateStore:
    """Loads and saves states; safe from any thread.

    Args:
        url: the URL of the Redis server; may hold a password, and is never shown.
        server: the name of the server, whose states these are.
        limits: the `server` section of the configuration.
        clock: times the attempts to reach a server that does not answer.
        logger: logs when Redis fails and works again.
        prefix: the prefix of all keys.
    """

    _url: str
    _server: str
    _limits: ServerSection
    _clock: Clock
    _logger: StructuredLogger
    _prefix: str = "foundation-rt:"
    _redis: Redis = field(init=False)
    _load: Script = field(init=False)
    _save: Script = field(init=False)
    _outage: Outage = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._redis = connect_blocking(self._url, _TIMEOUT_SECONDS)
        self._outage = Outage(
            self._logger,
            "the Redis of session states fails: calls that look at one fail",
            "the Redis of session states works again",
            self._clock,
            _RETRY_SECONDS,
        )
        self._load = self._redis.register_script(_LOAD)
        self._save = self._redis.register_script(_SAVE)

    def load(self, name: StateName) -> dict[str, bytes]:
        """Return the JSON of each value of a state, by its name.

        Raises:
            ToolError: INTERNAL, `session_state_unavailable`; Redis does not answer.
        """
        found = self._run(self._load, name, [self._ttl_ms(name)])
        if found is None:
            raise ToolError(
                ErrorCode.INTERNAL,
                "The session state cannot be read now: try again later",
                {"reason": "session_state_unavailable"},
            )
        pairs = iter(found)
        return {field.decode(): next(pairs) for field in pairs}

    def save(self, name: StateName, changes: StateChanges) -> None:
        """Write what a call has changed, and nothing else; all of it or nothing.

        Raises:
            ToolError: INTERNAL, `session_state_not_stored`, Redis does not answer;
                RESOURCE_EXHAUSTED, it would be too large, or too many principals have a state.
        """
        limits = self._limits
        arguments: list[Any] = [
            self._ttl_ms(name),
            limits.session_state_bytes,
            limits.session_states,
            len(changes.removed),
            *changes.removed,
        ]
        for each in changes.written.items():
            arguments += each
        result = self._run(self._save, name, arguments)
        if result is None:
            raise ToolError(
                ErrorCode.INTERNAL,
                "The handler has run, but what it keeps in the session state could not be stored:"
                " whether another attempt is safe depends on what else it has done",
                {"reason": "session_state_not_stored"},
            )
        if result == b"large":
            raise state_too_large(limits.session_state_bytes)
        if result == b"full":
            raise too_many_states(limits.session_states)

    def forget(self, names: Sequence[StateName]) -> None:
        """Remove states; while Redis is away they are left to expire."""
        if not self._outage.pauses:
            try:
                self._redis.unlink(*map(self._key, names))
            except FAILURES as error:
                self._outage.note(error)

    def close(self) -> None:
        """Close the connections."""
        self._redis.close()

    def _run(self, script: Script, name: StateName, arguments: list[Any]) -> Any:
        """Return the result of a script; None if Redis does not answer."""
        if self._outage.pauses:
            return None
        keys = [self._key(name)]
        if name.is_principal:
            keys.append(f"{self._prefix}state:{self._tag}:principals")
        try:
            result = script(keys=keys, args=arguments)
        except FAILURES as error:
            self._outage.note(error)
            return None
        self._outage.note(None)
        return result

    def _ttl_ms(self, name: StateName) -> int:
        return self._limits.session_state_idle_ms if name.is_principal else SESSION_TTL_MS

    def _key(self, name: StateName) -> str:
        # Hashed: an id is a credential, and an identity may be long and private.
        kind = "principal" if name.is_principal else "session"
        digest = sha256(f"foundation-rt {kind} state\n{name.owner}".encode()).hexdigest()
        return f"{self._prefix}state:{self._tag}:{kind}:{digest}"

    @property
    def _tag(self) -> str:
        """Return the part of all keys of this server; in braces, as a cluster needs them."""
        return "{" + sha256(self._server.encode()).hexdigest()[:32] + "}"
